demo test:
	@echo not yet; exit 1

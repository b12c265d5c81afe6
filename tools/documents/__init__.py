"""Documents: text and pages of office files and PDFs, parsed by a child process that has given up its rights."""

"""Documents: text and pages of office files and PDFs, parsed by an unprivileged child process."""

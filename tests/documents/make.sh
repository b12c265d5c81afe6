#!/usr/bin/env bash
# Makes the documents of this folder again; README.md says with what. Their bytes differ from run to run, their text does not.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export HOME=$work
office() { soffice --headless "$@" >/dev/null 2>&1; }
cp "$here"/sources/* .
office --convert-to odt --infilter="HTML (StarWriter)" report.html long.html novel.html
office --convert-to docx report.odt
office --convert-to pdf report.odt
office --convert-to pdf long.odt
office --convert-to epub novel.odt
office --convert-to xlsx book.fods
office --convert-to ods book.fods
office --convert-to odp slides.fodp
office --convert-to pdf book.fods
office --convert-to pptx slides.fodp
qpdf --encrypt secret owner 256 -- report.pdf locked.pdf
qpdf --encrypt "" owner 256 -- report.pdf owner-locked.pdf
qpdf --object-streams=generate --recompress-flate --compression-level=9 long.pdf packed.pdf
pdftoppm -r 60 -gray -f 1 -l 1 report.pdf page
python3 -c 'from PIL import Image; Image.open("page-1.pgm").save("scan.pdf", resolution=60, quality=50)'
msoffcrypto-tool -e -p secret report.docx locked.docx
mv packed.pdf long.pdf
python3 python.py
cp python.docx python.xlsx python.pptx book.pdf "$here"
cp report.odt book.ods slides.odp "$here"
cp report.docx report.pdf book.xlsx slides.pptx novel.epub long.pdf scan.pdf locked.pdf owner-locked.pdf locked.docx "$here"

"""Documents by the libraries that programs write them with; they are no dependency of ours."""
# mypy: ignore-errors

import datetime

import docx
import openpyxl
import pptx
from docx.enum.text import WD_BREAK

document = docx.Document()
document.add_heading("Contract 合同", 0)
document.add_heading("Parties", 1)
for text, style in (("one", "List Number"), ("two", "List Number"), ("b", "List Bullet")):
    document.add_paragraph(text, style=style)
grid = document.add_table(2, 3)
grid.cell(0, 0).merge(grid.cell(0, 1)).text = "a\nb"
grid.cell(0, 2).text = "c"
grid.cell(1, 0).add_table(1, 1).cell(0, 0).text = "nested"
grid.cell(1, 2).text = "x|y"
paragraph = document.add_paragraph("before")
paragraph.add_run().add_break(WD_BREAK.PAGE)
paragraph.add_run("after")
document.save("python.docx")

book = openpyxl.Workbook()
sheet = book.active
sheet.title = 'It\'s "x"'
sheet.append(["when", "n", "f"])
sheet.append([datetime.datetime(2026, 1, 2, 3, 4, 5), 1.5, "=B2*2"])  # noqa: DTZ001 - a sheet knows no time zone
sheet["E9"] = "far"
book.create_sheet("empty")
book.save("python.xlsx")

slides = pptx.Presentation()
slide = slides.slides.add_slide(slides.slide_layouts[1])
slide.shapes.title.text = "Title 题"
frame = slide.placeholders[1].text_frame
frame.text = "first"
second = frame.add_paragraph()
second.text, second.level = "second", 1
slide.notes_slide.notes_text_frame.text = "note"
slides.save("python.pptx")

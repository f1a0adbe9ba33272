"""What biloop shows to a reader: tables for the terminal, figures, data for machines.

One kind of output per file. Only the tables need rich, and matplotlib is imported when a figure is
drawn.
"""

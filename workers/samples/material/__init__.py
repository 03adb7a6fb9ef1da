"""Material for samples: texts, images and sounds of our own, the same bytes on every machine.

Texts are data; images and sounds are computed from a number with NumPy alone, in double precision,
and rounded to 8 and 16 bits at the end, so that the last bits of a processor's functions vanish.
"""

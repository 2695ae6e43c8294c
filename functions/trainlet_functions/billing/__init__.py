"""Money: price lists, rating, and what people read of it.

Rating is a pure function of segments and price versions. Money is integers: nano-units of the currency. This room must
not know how seconds were metered.
"""

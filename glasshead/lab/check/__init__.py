"""Check attention that someone else wrote: is it right, and if not, which mistake is it?

target.py          find the function, class, object or model that TARGET names; construct it
roles.py           which parameter is what: q, k, v, x, a mask, a flag, the number of heads
layouts.py         the order of axes, and the forms and kinds of masks
calling.py         call the target on a case, whatever its layout and kind of mask
projections.py     read the projections of a module from its parameters
pipeline.py        the reference in float64, as a list of steps
mistakes.py        each named mistake: the steps that it replaces
cases.py           small inputs on which mistakes show
comparing.py       which list of steps computes what the target computes
properties.py      dropout, gradients, overflow, empty rows, memory: what no case shows
memory.py          caches, and objects that read token by token
states.py          what one call leaves for the next
counterexample.py  the smallest input on which the target is wrong
checking.py        all of it in order: `check(target)`
report.py          the answer as one screen, in two languages, or as JSON
"""

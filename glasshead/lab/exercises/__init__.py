"""Exercises: the learner writes attention, from softmax to a translator, and has it checked.

catalog.py      the exercises in order: text, starter and solution of each (lessons/exercises/*.py)
checks/         one file an exercise: cases, the right answer, wrong answers with names; its texts
judging.py      run the learner's function on cases, compare, and name the mistake
attention.py    what `glasshead check` knows of attention, for the exercises that are about it
learner.py      load the learner's file; explain the errors that it raises
child.py        all of that in a process of its own, with a time limit
folder.py       the learner's folder: files, which are never overwritten, and progress
looking.py      run the learner's code in a small model, and draw its heads
textbook.py     numbers that the documents print
report.py       what is printed, in two languages, or as JSON

To add one: a script in lessons/exercises, a module and its texts in checks/, and three wrong
answers in tests/lab/exercises.
"""

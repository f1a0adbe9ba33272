"""The rules of the layout as functions of a tree, so that they can be tried on a broken one."""

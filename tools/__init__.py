"""Tools: what an agent can do, one module for each, behind one policy and one toolbox.

What runs or writes does it within the workspace and its limits; `binding` says what an approval covers.
"""

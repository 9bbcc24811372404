"""The dispatch tables of the installed torch and the declarations of its operators, as data."""

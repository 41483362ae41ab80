"""The built-in views. Each file declares a view, or some views of one subject: the table and its columns.

To add a built-in view, write its file and list it in ``builtin``. Plugins use the hook ``perfkit_views``. Shared
modules:

- ``select``: the events that a request selects; ranks and threads; the time of the steps,
- ``grouping``: the key columns that ``--by`` adds, including Python stacks,
- ``attribution``: the host event to which device work belongs; how the frameworks' own tables count,
- ``tables``: tables made of arrays,
- ``merging``: the merge of the tables of several ranks."""

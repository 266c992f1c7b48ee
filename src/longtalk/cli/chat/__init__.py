"""`longtalk chat`: talk with a model in the terminal, or send a message from a pipe.

`loop` reads messages and commands until the input ends, `commands` is the table of slash commands, `turns` runs turns,
and `views` prints what a conversation has. There are two screens: `plain` for pipes and simple terminals, and `screen`,
with `prompt` and `rendering`, for terminals that can move the cursor.
"""

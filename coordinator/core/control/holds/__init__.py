"""What of a group an operator holds, until when, and what that makes of its plans.

Freeze beats hold, hold beats pin, pin beats drain, and all of them beat balance: `values` says what is held,
`correction` what becomes of a plan, `verbs` how it begins and ends, `departures` what stays when a member goes.
"""

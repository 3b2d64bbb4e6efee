"""What holds mean to each kind of group: who is there, who has what, and what stands when somebody goes."""

"""The lab: one workload under every generation of the protocol, in virtual time, and what it cost each of them."""

"""Copies at work: fetched, flushed, committed; the in-sync replicas asked for, the image polled."""

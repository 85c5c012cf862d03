"""Folders and files that one command fills.

filling         a folder that is filled at once or in steps; an ended run is resumed or removed
repeated        a filled folder that is filled again: kept if it is the same, replaced on request
repeated_files  the same of single files
"""

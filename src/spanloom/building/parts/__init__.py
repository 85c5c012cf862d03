"""Made rows between the steps: parts on disk, packed and published for the next step or the next try.

stored  the files of parts
packs   many parts in a few large files
work    packs at a work place
clear   removes what was published at a work place
"""

"""biloop beside its peers: the same works, each contender in a process of its own, in turns."""

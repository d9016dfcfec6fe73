"""Other servers' wire formats, one file each; they translate to and from the gateway's types, and do not share code."""

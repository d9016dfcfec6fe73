"""Other servers' wire formats, one file each; they translate to and from the gateway's own types and know no other."""

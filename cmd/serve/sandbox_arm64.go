package serve

import "golang.org/x/sys/unix"

// archCalls are system calls that the other architectures name otherwise.
var archCalls = []uint32{unix.SYS_FSTATAT}

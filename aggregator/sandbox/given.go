package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// Given returns the first file of a socket's control message, and closes others: a confined process opens no files, it is
// given them. It is nil if there is none.
func Given(rights []byte) (f *os.File) {
	messages, _ := unix.ParseSocketControlMessage(rights)
	for i := range messages {
		fds, _ := unix.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			if f == nil {
				f = os.NewFile(uintptr(fd), "received")
			} else {
				unix.Close(fd)
			}
		}
	}
	return f
}

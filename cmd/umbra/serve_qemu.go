package main

import (
	"encoding/json"
	"strings"
)

// guestMemory is the guest's memory in the arguments. Any size works if it is the
// same in both.
const guestMemory = "2G"

// qemuArgs are QEMU's arguments that attach the GPU at a socket. The server maps the
// guest's memory, so the memory must be shared.
func qemuArgs(socket string) []string {
	device, err := json.Marshal(map[string]any{
		"driver": "vfio-user-pci",
		"socket": map[string]string{"type": "unix", "path": socket},
	})
	if err != nil {
		panic(err) // strings and maps always encode
	}
	return []string{
		"-machine", "q35,memory-backend=mem",
		"-m", guestMemory,
		"-object", "memory-backend-memfd,id=mem,size=" + guestMemory + ",share=on",
		"-device", string(device),
	}
}

// shellLines writes arguments for a shell, an option and its value to a line.
func shellLines(args []string) string {
	var b strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
			b.WriteString("  ")
		case strings.HasPrefix(a, "-"):
			b.WriteString(" \\\n  ")
		default:
			b.WriteByte(' ')
		}
		if strings.ContainsAny(a, " '\"{}$`\\&;|<>()*?[]#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
	}
	return b.String() + "\n"
}

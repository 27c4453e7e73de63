package shim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// The server and preload/shim.c exchange packets. The server's first has one byte, 1 if each request has an answer, and the
// descriptor of the machine's memory. Then the program sends a request at a time: its number
// and the size of its argument (32 bits each), the argument, and for a submission the lists of
// buffers and parts. The answer is a verdict and a size (32 bits each), and the argument or a
// text. What a kernel does later, a submission and the closing of a buffer, has no answer unless the program is recorded: a
// failure of it is the answer to the next request, and ends the program.
const headSize = 8

// Verdicts, besides a negative errno.
const (
	verdictDone      = 0
	verdictElsewhere = 1 // the noop shim is to answer
	verdictFailed    = 2 // the program is to end with this text
)

// answer carries out a packet.
func (k *Kernel) answer(packet []byte) []byte {
	if len(packet) < headSize || len(packet)-headSize < int(binary.LittleEndian.Uint32(packet[4:])) {
		return reply(verdictFailed, []byte("a request was cut off"))
	}
	size := headSize + int(binary.LittleEndian.Uint32(packet[4:]))
	arg := packet[headSize:size:size]
	err := k.failed
	if err == nil {
		err = k.Do(packet[0], arg, packet[size:])
	}
	if requests[packet[0]].posted && k.recorder == nil {
		if err != nil && k.failed == nil {
			k.failed = fmt.Errorf("request %#x: %v", packet[0], err) // no errno: the program has gone on
		}
		return nil
	}
	var errno unix.Errno
	switch {
	case err == nil:
		return reply(verdictDone, arg)
	case errors.Is(err, errElsewhere):
		return reply(verdictElsewhere, nil)
	case errors.As(err, &errno):
		return reply(-int32(errno), nil)
	}
	k.told = true
	return reply(verdictFailed, []byte(err.Error()))
}

func reply(verdict int32, text []byte) []byte {
	p := binary.LittleEndian.AppendUint32(nil, uint32(verdict))
	return append(binary.LittleEndian.AppendUint32(p, uint32(len(text))), text...)
}

package gsp

import "fmt"

// A queue is a page with its header and 63 elements of a page. The pages of both are named by a list in
// the first page, and need not be adjacent.
const (
	queueSize = 0x40000
	elements  = queueSize/pageSize - 1
	maxShared = pageSize / 8 // pages that the list has room for

	// Offsets in a queue's first page. The reader's pointer is that of the other queue.
	headVersion = 0x00
	headSize    = 0x04
	headElement = 0x08
	headCount   = 0x0c
	headWrite   = 0x10
	headFlags   = 0x14
	headReadAt  = 0x18
	headEntries = 0x1c
	headRead    = 0x20
	headBytes   = 0x24

	flagCrossed = 1 // the reader's pointer of a queue is in the other queue's page
)

// Queues are the two of a guest. The guest owns one pointer of each and may write anything there; those
// that are ours are in the state, never read back.
type Queues struct {
	mem Memory
	QueuesState
}

// QueuesState is what is known of the queues.
type QueuesState struct {
	Pages            []uint64 `json:"pages"` // bus addresses
	Commands, Status uint32   // offsets in the pages
	Read             uint32   `json:"read"`  // the next command
	Write            uint32   `json:"write"` // the next free element of the status queue
	Sequence         uint32   `json:"sequence"`
}

// valid reports whether a state can be one of queues.
func (q *QueuesState) valid() bool {
	size := uint64(len(q.Pages)) * pageSize
	return q.Read < elements && q.Write < elements && uint64(q.Commands)+queueSize <= size && uint64(q.Status)+queueSize <= size
}

// OpenQueues takes a guest's queues into service.
func OpenQueues(m Memory, a Arguments) (*Queues, error) {
	list := make([]byte, a.Pages*8)
	if !m.Read(a.Shared, list) {
		return nil, fmt.Errorf("list of %d pages at %#x: %w", a.Pages, a.Shared, errOutside)
	}
	q := &Queues{mem: m, QueuesState: QueuesState{Commands: a.Commands, Status: a.Status}}
	for ; len(list) > 0; list = list[8:] {
		at := le.Uint64(list)
		if at%pageSize != 0 {
			return nil, fmt.Errorf("page %d of the queues is at %#x, which is no page", len(q.Pages), at)
		}
		q.Pages = append(q.Pages, at)
	}
	var head [headBytes]byte
	for _, f := range []struct {
		at int
		v  uint32
	}{
		{headVersion, 0}, {headSize, queueSize}, {headElement, pageSize}, {headCount, elements},
		{headFlags, flagCrossed}, {headReadAt, headRead}, {headEntries, pageSize},
	} {
		le.PutUint32(head[f.at:], f.v)
	}
	if !q.write(q.Status, head[:]) {
		return nil, fmt.Errorf("queue of status at %#x: %w", q.Pages[q.Status/pageSize], errOutside)
	}
	return q, nil
}

// access calls do for each piece of n bytes at an offset, which are in the pages.
func (q *Queues) access(off uint32, p []byte, do func(addr uint64, p []byte) bool) bool {
	for len(p) > 0 {
		n := min(len(p), int(pageSize-off%pageSize))
		if !do(q.Pages[off/pageSize]+uint64(off%pageSize), p[:n]) {
			return false
		}
		off, p = off+uint32(n), p[n:]
	}
	return true
}

func (q *Queues) read(off uint32, p []byte) bool  { return q.access(off, p, q.mem.Read) }
func (q *Queues) write(off uint32, p []byte) bool { return q.access(off, p, q.mem.Write) }

// pointer reads a pointer of the guest's.
func (q *Queues) pointer(off uint32) (v uint32, ok bool) {
	var p [4]byte
	if !q.read(off, p[:]) {
		return 0, false
	}
	v = le.Uint32(p[:])
	return v, v < elements
}

func (q *Queues) putPointer(off, v uint32) bool {
	var p [4]byte
	le.PutUint32(p[:], v)
	return q.write(off, p[:])
}

// used is how many elements are between a reader and a writer.
func used(read, write uint32) uint32 { return (write + elements - read) % elements }

// element is the offset of element i of a queue.
func element(queue, i uint32) uint32 { return queue + pageSize + i%elements*pageSize }

// Receive copies the next element of the commands, without its pages' padding. It returns nil if there
// is none.
func (q *Queues) Receive() ([]byte, error) {
	write, ok := q.pointer(q.Commands + headWrite)
	if !ok {
		return nil, fmt.Errorf("the write pointer of the commands is not below %d", elements)
	}
	there := used(q.Read, write)
	if there == 0 {
		return nil, nil
	}
	first := make([]byte, pageSize)
	if !q.read(element(q.Commands, q.Read), first) {
		return nil, fmt.Errorf("command %d: %w", q.Read, errOutside)
	}
	n := le.Uint32(first[elementPages:])
	if n == 0 || n > maxElementPages || n > there {
		return nil, fmt.Errorf("command %d has %d pages, of %d that were written", q.Read, n, there)
	}
	m := first
	for i := uint32(1); i < n; i++ {
		m = append(m, make([]byte, pageSize)...)
		if !q.read(element(q.Commands, q.Read+i), m[i*pageSize:]) {
			return nil, fmt.Errorf("command %d: %w", q.Read+i, errOutside)
		}
	}
	q.Read = (q.Read + n) % elements
	if !q.putPointer(q.Status+headRead, q.Read) {
		return nil, fmt.Errorf("the read pointer of the commands: %w", errOutside)
	}
	return m, nil
}

// Send appends an element to the status queue. It returns false if there is no room for it and spare
// others, and does not wait for any.
func (q *Queues) Send(m []byte, spare uint32) (sent bool, err error) {
	n := uint32(len(m)+pageSize-1) / pageSize
	read, ok := q.pointer(q.Commands + headRead)
	if !ok {
		return false, fmt.Errorf("the read pointer of the status queue is not below %d", elements)
	}
	if used(q.Write, (read+elements-1)%elements) < n+spare {
		return false, nil
	}
	m = append(m, make([]byte, int(n)*pageSize-len(m))...)
	le.PutUint32(m[elementSequence:], q.Sequence)
	le.PutUint32(m[elementPages:], n)
	le.PutUint32(m[elementChecksum:], 0)
	le.PutUint32(m[elementChecksum:], checksum(m))
	for i := range n {
		if !q.write(element(q.Status, q.Write+i), m[i*pageSize:(i+1)*pageSize]) {
			return false, fmt.Errorf("reply: %w", errOutside)
		}
	}
	q.Sequence++
	q.Write = (q.Write + n) % elements
	if !q.putPointer(q.Status+headWrite, q.Write) {
		return false, fmt.Errorf("the write pointer of the status queue: %w", errOutside)
	}
	return true, nil
}

// checksum is what makes the exclusive or of an element's words zero.
func checksum(m []byte) uint32 {
	sum := uint64(0)
	for ; len(m) > 0; m = m[8:] {
		sum ^= le.Uint64(m)
	}
	return uint32(sum>>32) ^ uint32(sum)
}

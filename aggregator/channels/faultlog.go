package channels

import (
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
)

// keptFaults is how many of a guest's last faults are kept.
const keptFaults = 16

// Stopped says which of a guest's channels a fault stopped, and when.
type Stopped struct {
	At      time.Time
	Channel uint32 // the guest's number
	Fault   card.Fault
}

// FaultLog has the last faults that stopped channels of a guest, for good or until its driver has handled the fault. Software
// methods are not noted: they are meant for the driver. Any goroutine may use it; its lock is a leaf.
type FaultLog struct {
	mu   sync.Mutex
	n    uint64 // faults ever
	list [keptFaults]Stopped
}

// Note adds a fault.
func (l *FaultLog) Note(channel uint32, f card.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list[l.n%keptFaults] = Stopped{time.Now(), channel, f}
	l.n++
}

// Since returns those after the first n faults that are kept, oldest first, and how many there were ever.
func (l *FaultLog) Since(n uint64) (list []Stopped, all uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n > keptFaults {
		n = max(n, l.n-keptFaults)
	}
	for ; n < l.n; n++ {
		list = append(list, l.list[n%keptFaults])
	}
	return list, l.n
}

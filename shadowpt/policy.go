package shadowpt

import "fmt"

// Sync selects when a guest's changes to its tables reach the card.
type Sync uint8

const (
	// SyncLazy records an invalidate while no channel of the space runs, and updates
	// shadows before the next work that could see them.
	SyncLazy Sync = iota
	// SyncFlush updates shadows at each TLB invalidate.
	SyncFlush
	// SyncEager is SyncFlush, and applies each trapped write of an entry immediately.
	SyncEager
)

// Syncs are the names of each Sync.
var Syncs = [...]string{SyncLazy: "lazy", SyncFlush: "flush", SyncEager: "eager"}

func (s Sync) String() string { return Syncs[s] }

// Scan selects how changes are found.
type Scan uint8

const (
	// ScanIncremental reads only tables that may have changed (see Tracker).
	ScanIncremental Scan = iota
	// ScanFull reads all tables: Shadow.Rebuild.
	ScanFull
)

// Scans are the names of each Scan.
var Scans = [...]string{ScanIncremental: "incremental", ScanFull: "full"}

func (s Scan) String() string { return Scans[s] }

// Policy is how the tables of one guest are shadowed. The zero value is the default,
// lazy and incremental.
type Policy struct {
	Sync Sync
	Scan Scan
}

// Policies lists every valid combination. Eager applies single writes, which a full scan
// does not track.
func Policies() []Policy {
	return []Policy{
		{SyncFlush, ScanFull}, {SyncLazy, ScanFull},
		{SyncFlush, ScanIncremental}, {SyncLazy, ScanIncremental}, {SyncEager, ScanIncremental},
	}
}

// Check reports whether the combination is valid.
func (p Policy) Check() error {
	list := ""
	for _, c := range Policies() {
		if c == p {
			return nil
		}
		if list != "" {
			list += ", "
		}
		list += fmt.Sprintf("%v with %v", c.Sync, c.Scan)
	}
	return fmt.Errorf("%v does not go with %v; possible are %s", p.Sync, p.Scan, list)
}

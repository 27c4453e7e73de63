package shadowpt

// Sync selects when a guest's changes to its tables reach the card.
type Sync uint8

const (
	// SyncLazy records an invalidate while no channel of the space runs, and updates
	// shadows before the next work that could see them.
	SyncLazy Sync = iota
	// SyncFlush updates shadows at each TLB invalidate.
	SyncFlush
)

// Syncs are the names of each Sync.
var Syncs = [...]string{SyncLazy: "lazy", SyncFlush: "flush"}

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

// Policies lists every combination.
func Policies() []Policy {
	return []Policy{
		{SyncFlush, ScanFull}, {SyncLazy, ScanFull}, {SyncFlush, ScanIncremental}, {SyncLazy, ScanIncremental},
	}
}

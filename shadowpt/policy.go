package shadowpt

import "fmt"

// Sync says when a guest's changes to its tables become the card's.
type Sync uint8

const (
	// SyncFlush brings shadows up to date at each TLB invalidate.
	SyncFlush Sync = iota
	// SyncLazy notes an invalidate while nothing of the space runs, and brings
	// shadows up to date before the next work that could see them.
	SyncLazy
	// SyncEager is SyncFlush, and applies each trapped write of an entry at once.
	SyncEager
	// SyncAdaptive is SyncLazy, and applies writes at once to those pages of tables
	// that are written now and then; see Pattern.
	SyncAdaptive
)

// Syncs are the names of each Sync.
var Syncs = [...]string{SyncFlush: "flush", SyncLazy: "lazy", SyncEager: "eager", SyncAdaptive: "adaptive"}

func (s Sync) String() string { return Syncs[s] }

// Lazy reports whether an invalidate may wait for work that could see it.
func (s Sync) Lazy() bool { return s == SyncLazy || s == SyncAdaptive }

// Scan says how it is found out what changed.
type Scan uint8

const (
	// ScanFull reads all tables: Shadow.Rebuild.
	ScanFull Scan = iota
	// ScanIncremental looks at what may have changed: a Tracker.
	ScanIncremental
)

// Scans are the names of each Scan.
var Scans = [...]string{ScanFull: "full", ScanIncremental: "incremental"}

func (s Scan) String() string { return Scans[s] }

// Policy is how the tables of one guest are shadowed.
type Policy struct {
	Sync Sync
	Scan Scan
	Rule Rule // of SyncAdaptive
}

// DefaultPolicy is what a guest gets that nobody said anything else for.
var DefaultPolicy = Policy{Sync: SyncLazy, Scan: ScanIncremental, Rule: DefaultRule}

// combinations are those that make sense. Eager and adaptive apply single writes,
// and a full scan knows of none.
var combinations = [...]struct {
	Sync
	Scan
}{
	{SyncFlush, ScanFull}, {SyncLazy, ScanFull},
	{SyncFlush, ScanIncremental}, {SyncLazy, ScanIncremental}, {SyncEager, ScanIncremental}, {SyncAdaptive, ScanIncremental},
}

// Check says what is wrong with a policy, and what would be right.
func (p Policy) Check() error {
	list := ""
	for _, c := range combinations {
		if c.Sync == p.Sync && c.Scan == p.Scan {
			return p.Rule.check()
		}
		if list != "" {
			list += ", "
		}
		list += fmt.Sprintf("%v with %v", c.Sync, c.Scan)
	}
	return fmt.Errorf("%v does not go with %v; possible are %s", p.Sync, p.Scan, list)
}

// Policies lists every possible combination, with the default rule.
func Policies() (list []Policy) {
	for _, c := range combinations {
		list = append(list, Policy{c.Sync, c.Scan, DefaultRule})
	}
	return list
}

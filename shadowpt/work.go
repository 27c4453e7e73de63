package shadowpt

// Work counts and bounds the cost of building the shadows of one guest, and provides their scratch
// memory. Shadows that share a Work belong to the same goroutine.
type Work struct {
	Counts Counts
	// Left is how many bytes of the guest's tables may still be read, or mapped for the card: pageCost for
	// each page and changeCost for each change. What does not fit counts as absent until the next
	// update with something left. What is unmapped was paid for when it was mapped. The owner sets
	// Left before a build, and may set it to 0 to end one early.
	Left uint64

	format *Format
	nodes  int
	// placed is the weight of all nodes, at each of their places: entries that name the same tables do
	// not multiply the work without bound. quota is the most. full says that something did not fit.
	placed, quota uint64
	full          bool
	cut           bool // something was left out because nothing was Left
	unmapped      bool // something was unmapped; the memory of its tables may be free after an invalidate

	bits, attributes uint64 // of the last page entry that was translated, and of its word

	buf    []byte
	dirs   [MaxLevels][]byte
	sheets [2]sheet
	out    output
}

// maxNodes bounds the nodes of a guest's shadows, and so their memory. One covers 2 MiB at
// least. An entry that would need one more counts as absent.
const maxNodes = 1 << 17

// NewWork returns a Work for tables of a format that allows left bytes. Its shadows may have quota
// bytes of tables, with each table counted as often as directories name it.
func NewWork(f *Format, left, quota uint64) *Work {
	w := &Work{Left: left, format: f, quota: quota, buf: make([]byte, f.Pages[small].Size())}
	w.out.pending, w.out.addrs = make([]Change, 0, maxChanges), make([]uint64, 0, maxAddrs+1)
	for i := range f.Dirs {
		w.dirs[i] = make([]byte, f.Dirs[i].Size())
	}
	for i := range w.sheets {
		w.sheets[i] = newSheet(&f.Pages[i])
	}
	return w
}

// Costs of what the card gets, in bytes of Left.
const (
	pageCost   = 8  // a page, as an entry that is read
	changeCost = 24 // a change, afterwards: pages that continue one another share it
)

// take reports whether n bytes may be read or mapped, and counts them.
func (w *Work) take(n uint64) bool {
	if n > w.Left || w.Left == 0 {
		w.Left, w.cut = 0, true
		return false
	}
	w.Left -= n
	return true
}

// Counts are the costs and refusals of building shadows.
type Counts struct {
	Compared  uint64 // bytes of tables compared with what they were
	Examined  uint64 // entries looked at
	Changed   uint64 // of these, entries that were not what they had been
	Rewritten uint64 // pages that the card mapped, replaced or unmapped
	Foreign   uint64 // valid entries that name nothing of the guest's
	Unread    uint64 // tables outside the guest's memory
	NoRoom    uint64 // changes for whose tables the guest's share had no room
	Refused   uint64 // changes that the card refused for other reasons
	Cut       uint64 // tables and pages that the bounds on work left out
}

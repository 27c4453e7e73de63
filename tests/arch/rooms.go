package arch

import "strings"

// Module is the path of the root module. Nested modules lie below it.
const Module = "github.com/umbra-gpu/umbra"

// A room is a folder and everything below it, down to the next room. A package
// belongs to the room with the longest matching path.
type room string

// The rooms.
const (
	cmd        room = "cmd"
	devmodel   room = "devmodel"
	aggregator room = "aggregator"
	sched      room = "aggregator/sched"
	card       room = "aggregator/card"
	cardBell   room = "aggregator/card/doorbell"
	cardHomes  room = "aggregator/card/homes"
	cardSoft   room = "aggregator/card/soft"
	cardVFIO   room = "aggregator/card/vfio"
	vfiouser   room = "vfiouser"
	mmio       room = "mmio"
	shadowpt   room = "shadowpt"
	firmware   room = "firmware"
	tests      room = "tests"
	lab        room = "tests/lab"
	guest      room = "tests/guest"
)

var rooms = []room{cmd, devmodel, aggregator, sched, card, cardBell, cardHomes, cardSoft, cardVFIO, vfiouser, mmio, shadowpt, firmware, tests, lab, guest}

// allowed says which rooms a room may import besides itself.
var allowed = map[room][]room{
	cmd:        {devmodel, aggregator, sched, card, cardBell, cardHomes, cardSoft, cardVFIO, vfiouser, mmio, shadowpt, firmware, lab, guest}, // umbra bench boots guests, and is one itself
	devmodel:   {mmio, firmware},
	aggregator: {sched, card, cardBell, cardHomes, shadowpt, mmio},
	sched:      {},
	card:       {},
	cardBell:   {},
	cardHomes:  {card, shadowpt},
	cardSoft:   {card, cardBell, cardHomes, mmio, shadowpt, firmware},
	cardVFIO:   {card, mmio},
	vfiouser:   {},
	mmio:       {},
	shadowpt:   {},
	firmware:   {},
	tests:      {cmd, devmodel, aggregator, sched, card, cardBell, cardHomes, cardSoft, cardVFIO, vfiouser, mmio, shadowpt, firmware, lab, guest},
	lab:        {},
	guest:      {vfiouser, mmio, shadowpt},
}

// forbidden says why the others are not. An empty from or to stands for every
// room; the first row that fits gives the reason. A test asks that every pair
// that is not allowed has one.
var forbidden = []struct {
	from, to room
	why      string
}{
	{"", tests, "what is shipped must not contain what tests it"},
	{"", lab, "machines are for tests, and for umbra bench, which measures what a guest sees"},
	{"", guest, "a driver in the process is for tests, and for umbra bench, which measures without a machine"},
	{guest, "", "a driver knows what the registers say, and nothing of what is behind the socket"},
	{lab, "", "the lab boots a machine on a socket, whatever serves it"},
	{"", cmd, "cmd joins the parts; a part that knows how it is joined cannot be used otherwise"},

	{devmodel, vfiouser, "a virtual GPU declares the host it needs, so that it is tested without a socket"},
	{devmodel, aggregator, "a virtual GPU declares the card it needs, so that it is tested without one"},
	{devmodel, sched, "when a submission runs is the aggregator's decision"},
	{devmodel, card, "only the aggregator touches a card: a virtual GPU that could would bypass the checks"},
	{devmodel, cardBell, "doorbells are looked for in memory, which only the aggregator and the card have"},
	{devmodel, cardHomes, "where a guest's pages live is decided behind the aggregator, where the extents are known"},
	{devmodel, cardSoft, "only the aggregator touches a card: a virtual GPU that could would bypass the checks"},
	{devmodel, cardVFIO, "only the aggregator touches a card: a virtual GPU that could would bypass the checks"},
	{devmodel, shadowpt, "guest tables are turned into card tables behind the aggregator, where the extents are known"},

	{aggregator, vfiouser, "the aggregator serves virtual GPUs, whatever carries them"},
	{aggregator, devmodel, "the aggregator sees its virtual GPUs through an interface of its own"},
	{aggregator, cardSoft, "the aggregator drives any card through package card; one it knows by name gets a side door"},
	{aggregator, cardVFIO, "the aggregator drives any card through package card; one it knows by name gets a side door"},
	{aggregator, firmware, "a card brings its own VBIOS; guests' images are devmodel's"},

	{sched, "", "the scheduler is pure code with an injected clock: anything it imported would be untestable time"},

	{card, "", "package card is the contract between cards and those who drive them; it knows neither side"},

	{cardBell, "", "who looks from time to time does not know at what: its owner looks"},

	{cardHomes, "", "windows are told what they show and move pages through an interface of their own: tests give them memory, not a GPU"},

	{cardSoft, vfiouser, "a card is plugged into a card.Host, whatever carries it"},
	{cardSoft, devmodel, "a card does not know who uses it"},
	{cardSoft, aggregator, "a card does not know who uses it"},
	{cardSoft, sched, "a card runs what it is given"},
	{cardSoft, cardVFIO, "cards do not know each other"},

	{cardVFIO, vfiouser, "a card is plugged into a card.Host, whatever carries it"},
	{cardVFIO, devmodel, "a card does not know who uses it"},
	{cardVFIO, aggregator, "a card does not know who uses it"},
	{cardVFIO, sched, "a card runs what it is given"},
	{cardVFIO, cardSoft, "cards do not know each other"},
	{cardVFIO, cardBell, "doorbells are looked for by those who drive the card"},
	{cardVFIO, cardHomes, "which page lives in which window is decided by those who drive the card"},
	{cardVFIO, shadowpt, "a real card walks its tables itself"},
	{cardVFIO, firmware, "a real card has its own VBIOS"},

	{vfiouser, "", "the protocol is usable by any device, so it knows none"},
	{mmio, "", "the register engine and the chip's rows are data that everything above reads; they read nothing above"},
	{shadowpt, "", "page tables are bytes in, bytes out: tests give it memory, not a GPU"},
	{firmware, "", "images are bytes in, bytes out"},
}

// libraries are the modules outside this one that the shipped code of a room
// may import, and the standard library always. A prefix stands for all below it.
var libraries = map[room][]string{
	cmd: {
		"golang.org/x/sys",
		"github.com/alecthomas/kong", // flags
		"github.com/goccy/go-yaml",   // the configuration file
	},
	devmodel:   {"golang.org/x/sys"},
	aggregator: {"golang.org/x/sys"},
	sched:      {},
	card:       {},
	cardBell:   {"golang.org/x/sys"},
	cardHomes:  {"golang.org/x/sys"},
	cardSoft:   {"golang.org/x/sys"},
	cardVFIO:   {"golang.org/x/sys"},
	vfiouser:   {"golang.org/x/sys"},
	mmio:       {},
	shadowpt:   {},
	firmware:   {},
	tests:      {""}, // nothing of it is shipped
	lab: {
		"golang.org/x/sys",
		"github.com/ulikunitz/xz", // packages
	},
	guest: {
		"golang.org/x/sys",
		"pgregory.net/rapid", // programs and attacks are drawn; umbra bench uses neither
	},
}

const whyLibraries = "core packages stand on the standard library and x/sys alone: each further module is code to audit and keep building"

// testLibraries may be imported by _test.go files everywhere.
var testLibraries = []string{
	"golang.org/x/sys",
	"github.com/stretchr/testify",
	"pgregory.net/rapid",
	"go.uber.org/goleak",
	"github.com/rogpeppe/go-internal",
}

// roomOf returns the room of a package or file path inside the module, "" if it
// lies in none.
func roomOf(path string) room {
	best := room("")
	for _, r := range rooms {
		if under(path, string(r)) && len(r) > len(best) {
			best = r
		}
	}
	return best
}

// under tells whether path is prefix or lies below it. "" is above everything.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (prefix == "" || rest == "" || rest[0] == '/')
}

func mayImport(from, to room) bool {
	if from == to {
		return true
	}
	for _, r := range allowed[from] {
		if r == to {
			return true
		}
	}
	return false
}

// why gives the reason for which from may not import to.
func why(from, to room) string {
	for _, f := range forbidden {
		if (f.from == "" || f.from == from) && (f.to == "" || f.to == to) {
			return f.why
		}
	}
	return ""
}

// Package config is what umbra can be told, by flags and by a file: the options
// as one structure, their defaults and bounds as its tags, and the reading,
// joining and checking of them.
//
// Every option is one field with one row of tags:
//
//	yaml   its name in the file, inside its section; the flag has the same name
//	name   that name once more, where the flag library would guess another
//	help   one line for a person
//	def    its default
//	min, max, step, pow2   what a number or size must keep to
//	oneof  the words that are possible
//	live   it may be changed while the GPU is there (see [Change])
//
// Profiles and virtual GPUs are lists, which a file gives whole; a flag adds one
// GPU. What a GPU does not say, its profile says, else the card.
//
// What is wrong is reported as an [Error], which names the option as the user
// wrote it (the flag, or file, line and path), the value, and what would be
// right. The package has no state, locks or goroutines.
package config

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// Config is everything that serve can be told.
type Config struct {
	Socket    string    `yaml:"socket" aliases:"socket-path" placeholder:"PATH" help:"UNIX socket to listen on, to give the whole card to one guest."`
	Control   string    `yaml:"control" placeholder:"PATH" help:"UNIX socket for umbra status, gpu, sched and regs."`
	Card      Card      `yaml:"card" embed:"" group:"The card"`
	Server    Server    `yaml:"server" embed:"" group:"The server"`
	Shadow    Shadow    `yaml:"shadow" embed:"" prefix:"shadow-" group:"Virtual GPUs"`
	Limits    Limits    `yaml:"limits" embed:"" group:"Virtual GPUs"`
	Scheduler Scheduler `yaml:"scheduler" embed:"" prefix:"sched-" group:"Virtual GPUs"`
	Profiles  []Profile `yaml:"profiles" kong:"-"`
	GPUs      []GPU     `yaml:"gpus" kong:"-"`
}

// Card describes the card.
type Card struct {
	Kind    string `yaml:"kind" placeholder:"KIND" def:"soft" oneof:"soft" help:"What the card is made of: soft."`
	VRAM    Size   `yaml:"vram" placeholder:"SIZE" def:"512MiB" min:"64MiB" max:"6GiB" step:"64MiB" help:"Memory of the card. What no guest touches costs nothing."`
	Engines bool   `yaml:"engines" negatable:"" def:"true" help:"Let the engines work. Without it they take every method and do nothing: what moves data must fail, which shows that its tests can."`
	Face
}

// Face is what a guest sees of its GPU, be it a card or a virtual one.
type Face struct {
	ROM         string    `yaml:"rom" placeholder:"FILE" help:"VBIOS image to use instead of the built one."`
	MSI         bool      `yaml:"msi" negatable:"" def:"true" help:"Offer MSI; without it interrupts are INTx."`
	Temperature int       `yaml:"temperature" placeholder:"C" def:"45" min:"0" max:"127" help:"What the temperature sensor reads, in degrees Celsius."`
	TPCs        Counts    `yaml:"tpcs" name:"tpcs" placeholder:"N,..." def:"4,4,3,3" help:"Number of TPCs in each GPC."`
	BAR1        Size      `yaml:"bar1" name:"bar1" placeholder:"SIZE" def:"128MiB" min:"16MiB" max:"8GiB" pow2:"" help:"Size of BAR1, the window into VRAM."`
	BAR3        Size      `yaml:"bar3" name:"bar3" placeholder:"SIZE" def:"64MiB" min:"16MiB" max:"1GiB" pow2:"" help:"Size of BAR3, the window into instance memory."`
	BARMap      homes.Map `yaml:"bar-map" name:"bar-map" placeholder:"PARTS" def:"all" help:"What QEMU maps, so that the guest reaches it without a trap: none, all, or any of bar1, bar3, pramin, rom. It stays so while the server, or the GPU, is there."`
	Device      ID        `yaml:"pci-device" name:"pci-device" placeholder:"ID" def:"06d8" help:"PCI device id, of vendor 10de."`
	Subsystem   Subsystem `yaml:"pci-subsystem" name:"pci-subsystem" placeholder:"ID:ID" def:"10de:076f" help:"PCI subsystem vendor and id."`
}

// Share is what a virtual GPU gets of the card.
type Share struct {
	VRAM     Size `yaml:"vram" placeholder:"SIZE" min:"64MiB" max:"6GiB" step:"1MiB"`
	Channels int  `yaml:"channels" placeholder:"N" min:"1" max:"128"`
	// Guaranteed of the channels are there whatever the other GPUs have.
	Guaranteed int  `yaml:"guaranteed" placeholder:"N" min:"1" max:"128"`
	Tables     Size `yaml:"tables" placeholder:"SIZE" min:"1MiB" max:"1GiB" step:"1MiB"`
}

// Limits bound what one guest, or the card, can cost everybody else.
type Limits struct {
	Guests         int           `yaml:"guests" placeholder:"N" def:"32" min:"1" max:"32" help:"How many virtual GPUs there may be at a time. Of each guest's memory the card reaches the first 1TiB divided by this number, taken up to a power of two."`
	RuleInterval   time.Duration `yaml:"rule-interval" placeholder:"TIME" def:"1s" min:"10ms" max:"1h" help:"How often the log hears of a rule that a guest breaks, or of why a mapped window is not exact, at most."`
	InterruptBurst int           `yaml:"interrupt-burst" placeholder:"N" def:"64" min:"1" max:"65536" help:"How often the card is asked what happened, at most, before one that always has something to say is left alone for a while."`
	InterruptPause time.Duration `yaml:"interrupt-pause" placeholder:"TIME" def:"1ms" min:"10us" max:"100ms" help:"And for how long."`
	InvalidateDirs int           `yaml:"invalidate-dirs" placeholder:"N" def:"32" min:"1" max:"1024" help:"How many page directories one invalidate of the card names; one of more makes it forget everybody's translations."`

	CardTimeout  time.Duration `yaml:"card-timeout" placeholder:"TIME" def:"500ms" min:"10ms" max:"2s" help:"How long the card is waited for, each time, and some 20 ms longer: the server itself may have stood still. A guest whose channels it has not given back by then is quarantined."`
	UnmapTimeout time.Duration `yaml:"unmap-timeout" placeholder:"TIME" def:"1.5s" min:"10ms" max:"4s" help:"How long a client waits at most when it takes memory away, and some 40 ms longer: the server itself may have stood still; QEMU gives up after 5 s. A guest whose memory the card still uses then loses all of it."`
	ErrorBurst   int           `yaml:"error-burst" placeholder:"N" def:"4096" min:"1" max:"1000000" help:"How many faults and errors of a guest may stop the card's engines at once before the guest is quarantined."`
	ErrorRate    int           `yaml:"error-rate" placeholder:"N" def:"512" min:"1" max:"1000000" help:"How many a second may do so for ever."`
	TableRate    Size          `yaml:"table-rate" placeholder:"SIZE" def:"512MiB" min:"1MiB" max:"1TiB" help:"How much work on page tables is done for one guest in a second, in the long run; its work waits for more. 1GiB is about a whole processor: eight bytes that are only compared count as one, an entry that is translated as 128."`
	MapAliases   int           `yaml:"map-aliases" placeholder:"N" def:"1024" min:"1" max:"65536" help:"How many more pages of mapped windows may show memory that another page already shows. Pages beyond that read as zeros."`
	MapRuns      int           `yaml:"map-runs" placeholder:"N" def:"2048" min:"8" max:"16384" help:"In how many pieces the pages that live in mapped windows may lie. Each takes two mappings of the process."`
	MapMoves     int           `yaml:"map-moves" placeholder:"N" def:"1024" min:"64" max:"65536" help:"How many pages one access of a register may move to or from mapped windows. The guest sees a larger invalidate as not yet done."`
	QueueLimits
}

// Profile is a kind of virtual GPU.
type Profile struct {
	Name string `yaml:"name" placeholder:"NAME"`
	Share
	CardTime
	Shadow Shadow `yaml:"shadow"`
	Face

	entry
}

// GPU is a virtual GPU.
type GPU struct {
	Name    string `yaml:"name" placeholder:"NAME"`
	Socket  string `yaml:"socket" placeholder:"PATH"`
	Profile string `yaml:"profile" placeholder:"NAME"`
	Share
	CardTime
	Shadow Shadow `yaml:"shadow"`
	Face

	entry
}

// Server describes the vfio-user server.
type Server struct {
	Transport      string `yaml:"transport" placeholder:"NAME" def:"native" oneof:"native,libvfio-user" help:"What speaks vfio-user. Native: the server of this program; libvfio-user: the C library, if it was built in."`
	WriteMulti     bool   `yaml:"write-multi" negatable:"" def:"true" help:"Let the client put several writes into one message. QEMU 10.1 and 10.2 are faster without."`
	MaxDMARegions  int    `yaml:"max-dma-regions" name:"max-dma-regions" placeholder:"N" def:"65535" min:"16" max:"65535" help:"How many ranges of its memory a client may map."`
	MaxDMAMappings int    `yaml:"max-dma-mappings" name:"max-dma-mappings" placeholder:"N" def:"128" min:"8" max:"65535" help:"How many of this process's mappings its memory may take: one for each file that it is in, however many ranges. Less by default where the system has few (vm.max_map_count)."`
	MaxDataSize    Size   `yaml:"max-data-size" name:"max-data-size" placeholder:"SIZE" def:"1MiB" min:"4KiB" max:"64MiB" help:"How much data one message of a client may have."`
	MaxDMASize     Size   `yaml:"max-dma-size" name:"max-dma-size" placeholder:"SIZE" def:"8TiB" min:"1MiB" max:"8TiB" help:"How large one range of a client's memory may be."`
}

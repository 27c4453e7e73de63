// Package config has all options of umbra serve, as one structure. The tags of a
// field are the only source of its key, flag, default, bounds and help: the flag library, the
// reader of files, the checks and the reference pages all use them.
//
//	yaml        the key in the file, inside its section
//	name        the flag, where the flag library would derive another from the field
//	help        one text for a person
//	default     the value if nobody gives one
//	validate    the bounds: oneof; min, max; multiple, pow2 for sizes
//	live        umbra gpu set or umbra sched set can change it
//	chip        the only chip that has the option
//	kind        the only kind of card that has the option
//	gh100       the default of a virtual GPU of this chip, and so for each chip
//
// A Config starts as [Default]. [Config.Parse] puts a file over it, [Config.Override] the flags,
// [Config.AddGPU] adds a virtual GPU, and [Config.Check] completes the GPUs and holds all
// against each other. Each reports every error that it finds, as an [Error] that names the
// option as the user wrote it.
//
// The package has no state, locks or goroutines.
package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// Config is all options of umbra serve.
type Config struct {
	Socket    string    `yaml:"socket" aliases:"socket-path" placeholder:"PATH" help:"UNIX socket that gives the whole card to one guest."`
	Access    Access    `yaml:"access" embed:"" prefix:"socket-" group:"Who may connect"`
	Control   string    `yaml:"control" placeholder:"PATH" help:"UNIX socket for umbra status, gpu, sched and regs. default: where these look for it, at $XDG_RUNTIME_DIR/umbra.sock, or /run/umbra/control.sock without that variable."`
	Admins    Access    `yaml:"control-access" embed:"" prefix:"control-" group:"Who may connect"`
	Metrics   Address   `yaml:"metrics" placeholder:"HOST:PORT" help:"TCP address where Prometheus reads /metrics: 127.0.0.1:9101. Whoever reaches it sees the numbers of all guests. The control socket has them without it."`
	Card      Card      `yaml:"card" embed:"" group:"The card"`
	Server    Server    `yaml:"server" embed:"" group:"The server"`
	Log       Log       `yaml:"log" embed:"" prefix:"log-" group:"The server"`
	Shadow    Shadow    `yaml:"shadow" embed:"" prefix:"shadow-" group:"Virtual GPUs"`
	Limits    Limits    `yaml:"limits" embed:"" group:"Virtual GPUs"`
	Scheduler Scheduler `yaml:"scheduler" embed:"" prefix:"sched-" group:"Virtual GPUs"`

	// Inherited has the paths of the listening sockets that the parent process opened, by the name of each:
	// ControlSocket, WholeSocket, or GPUSocket and the name of a GPU.
	Inherited map[string]string `kong:"-"`

	GPUs []GPU `kong:"-"` // completed by Check

	profiles, gpus []entry
	given          entry
	failed         bool // a file or text was refused, so that options may be missing
}

// Card describes the card.
type Card struct {
	Kind      string        `yaml:"kind" placeholder:"KIND" default:"soft" validate:"oneof=soft nvidia" help:"Kind of card: soft, the software card, or nvidia, a Hopper card of this machine that its NVIDIA driver serves. Virtual GPUs on it have the chip gh100, and it has no scheduler: it shares its engines itself, by weight."`
	VRAM      Size          `yaml:"vram" kind:"soft" placeholder:"SIZE" default:"512MiB" validate:"min=64MiB,max=64GiB,multiple=64MiB" help:"Memory of the software card; of an NVIDIA card, GPUs get what is free. Memory that no guest touches costs nothing."`
	Engines   bool          `yaml:"engines" kind:"soft" negatable:"" default:"true" help:"Let the engines work. Without it they accept every method and do nothing, so tests that move data must fail."`
	Slice     time.Duration `yaml:"slice" kind:"soft" placeholder:"TIME" default:"2ms" validate:"min=500us,max=100ms" help:"How long a channel may work before others get its engines. A request that takes longer is interrupted, and goes on later."`
	Compiler  string        `yaml:"compiler" kind:"soft" placeholder:"auto|off|FILE" default:"auto" help:"The program umbra-jit, which runs the programs of guests as machine code, in a process for each guest. auto uses the one beside this program or in $PATH, if there is one; off lets the server execute all programs itself, which is slower."`
	LLVM      string        `yaml:"llvm" kind:"soft" name:"llvm" placeholder:"FILE" help:"The library libLLVM.so.19.1 that umbra-jit loads, with its own dependencies beside it where the system lacks them. default: that of the system, or else the one that umbra lab run has fetched."`
	Index     int           `yaml:"index" kind:"nvidia" placeholder:"N" default:"0" validate:"min=0,max=255" help:"Number of an NVIDIA card: N of its file /dev/nvidiaN. umbra card probe lists them."`
	User      string        `yaml:"user" kind:"nvidia" placeholder:"NAME" default:"nobody" help:"User without privileges whom the processes that drive an NVIDIA card become, if the server is root. The files of the card must be open to that user."`
	AnyDriver bool          `yaml:"any-driver" kind:"nvidia" name:"any-driver" negatable:"" help:"Use an NVIDIA driver of a release that was never tried."`
	Face
}

// Values of card.compiler that are no file.
const (
	CompilerAuto = "auto"
	CompilerOff  = "off"
)

// Kinds of cards.
const (
	Soft   = "soft"
	Nvidia = "nvidia"
)

// What guests can see of an NVIDIA card. Memory that channels reach cannot move to where a client maps it, and a mapped BAR1
// has no traps.
const (
	nvidiaChip = "gh100"
	nvidiaMap  = aperture.MapBAR3
)

// Face is what a guest sees of its GPU, be it a card or a virtual GPU.
type Face struct {
	Chip        string       `yaml:"chip" placeholder:"NAME" default:"gf100" validate:"oneof=gf100 gh100" help:"What guests see: gf100, a Quadro 6000, or gh100, an H100 or H200 for the drivers of today. The software card itself is a gf100; another chip is that of virtual GPUs."`
	Model       string       `yaml:"model" placeholder:"NAME" default:"h100" chip:"gh100" validate:"oneof=h100 h200" help:"Model of a gh100, which guests see as its PCI device."`
	ROM         string       `yaml:"rom" chip:"gf100" placeholder:"FILE" help:"VBIOS image of a gf100 to use instead of the built one."`
	MSI         bool         `yaml:"msi" negatable:"" default:"true" help:"Offer MSI. Without it interrupts are INTx."`
	Temperature int          `yaml:"temperature" chip:"gf100" placeholder:"C" default:"45" validate:"min=0,max=127" help:"Reading of the temperature sensor of a gf100, in degrees Celsius."`
	TPCs        Counts       `yaml:"tpcs" name:"tpcs" placeholder:"N,..." default:"4,4,3,3" gh100:"7,7,7,7,7,7,7,8" help:"Number of TPCs in each GPC; a gh100 has 7,7,7,7,7,7,7,8 by default."`
	BAR1        Size         `yaml:"bar1" name:"bar1" placeholder:"SIZE" default:"128MiB" gh100:"256MiB" validate:"min=16MiB,max=8GiB,pow2" help:"Size of BAR1, the window into VRAM; a gh100 has 256MiB by default."`
	BAR3        Size         `yaml:"bar3" chip:"gf100" name:"bar3" placeholder:"SIZE" default:"64MiB" validate:"min=16MiB,max=1GiB,pow2" help:"Size of BAR3 of a gf100, the window into instance memory."`
	BARMap      aperture.Map `yaml:"bar-map" name:"bar-map" placeholder:"PARTS" default:"all" help:"Windows that QEMU maps, so that the guest reaches them without a trap: none, all, or any of bar1, bar3, pramin, rom. Only the native transport maps windows."`
	Device      ID           `yaml:"pci-device" chip:"gf100" name:"pci-device" placeholder:"ID" default:"06d8" help:"PCI device id of a gf100, of vendor 10de."`
	Subsystem   Subsystem    `yaml:"pci-subsystem" chip:"gf100" name:"pci-subsystem" placeholder:"ID:ID" default:"10de:076f" help:"PCI subsystem vendor and id of a gf100."`
}

// Server describes the vfio-user server.
type Server struct {
	Transport      string `yaml:"transport" placeholder:"NAME" default:"native" validate:"oneof=native libvfio-user" help:"Implementation of vfio-user: native is this program's own server, libvfio-user the C library, if it was built in."`
	WriteMulti     bool   `yaml:"write-multi" negatable:"" default:"true" help:"Let the client put several writes into one message. QEMU 10.1 and 10.2 are faster without."`
	MaxDMARegions  int    `yaml:"max-dma-regions" name:"max-dma-regions" placeholder:"N" default:"65535" validate:"min=8,max=65535" help:"Ranges of one client's memory. Each costs this process some 300 bytes, and up to 1300 while they come. A guest behind an emulated IOMMU needs one for each page that it maps."`
	MaxDMAMappings int    `yaml:"max-dma-mappings" name:"max-dma-mappings" placeholder:"N" default:"128" validate:"min=8,max=65535" help:"Mappings of this process that one client's memory may take: one for each range, and from half of this number on one for each file that holds some of it. All guests together must fit into an eighth of the sysctl vm.max_map_count; the default is lower where that is small."`
	MaxDMAMemory   Size   `yaml:"max-dma-memory" name:"max-dma-memory" placeholder:"SIZE" default:"1TiB" validate:"min=256MiB,max=32TiB" help:"Largest sum of one client's memory, in addresses of this process. All guests together must fit into a quarter of the process's addresses, which are 128TiB or the limit RLIMIT_AS; the default is lower where that is small."`
	MaxDMAAlloc    Size   `yaml:"max-dma-alloc" name:"max-dma-alloc" placeholder:"SIZE" default:"1GiB" validate:"min=1MiB,max=8TiB" help:"Memory that accesses of a GPU may allocate in the files of its clients: pages that nobody has touched before, which the kernel charges to this process's control group. It counts until the GPU is removed, for somebody may keep a file when its client has ended. Beyond it the access faults. All guests together must fit into half of the memory of the machine, or of the control group; the default is lower where that is small. Needs userfaultfd."`
	Sandbox        string `yaml:"sandbox" placeholder:"WHEN" default:"on" validate:"oneof=off log on" help:"Take from the server what it does not need: files (landlock), system calls (seccomp) and new privileges. log refuses nothing, and has the kernel log the system calls that on refuses. A line of the log says what the kernel lacks."`
	SandboxFolders string `yaml:"sandbox-folders" name:"sandbox-folders" placeholder:"PATH,..." help:"Folders where the sandbox lets GPUs that are added later have their sockets and ROM files, besides those of the sockets and ROM files of the start."`
	Inject         bool   `yaml:"inject" negatable:"" help:"Let umbra gpu inject plant faults in the GPUs of guests, for tests of their drivers."`
	DMAAnyFile     bool   `yaml:"dma-any-file" name:"dma-any-file" negatable:"" help:"Accept memory of a client in any file. Without it, the server accepts memfd, tmpfs and hugetlbfs. With it, a client whose file system does not answer stops the card for all guests."`
}

// Log describes what the server writes to its standard error.
type Log struct {
	Format string `yaml:"format" placeholder:"NAME" default:"text" validate:"oneof=text json" help:"Form of the log: text has key=value, json an object in each line."`
	Level  string `yaml:"level" placeholder:"NAME" default:"info" validate:"oneof=debug info warn error" help:"Least level that the log has. info has the server's and the clients' comings and goings, warn what goes wrong."`
}

// Limits bound what one guest, or the card, can cost the others.
type Limits struct {
	Guests      int           `yaml:"guests" placeholder:"N" default:"32" validate:"min=1,max=32" help:"Largest number of virtual GPUs at a time. The card reaches the first 1TiB divided by this number, rounded up to a power of two, of each guest's memory."`
	CardTimeout time.Duration `yaml:"card-timeout" placeholder:"TIME" default:"500ms" validate:"min=10ms,max=2s" help:"Timeout for one card operation, plus 20 ms for scheduling delay. A guest whose channels the card does not release in that time is quarantined."`
	ErrorRate   int           `yaml:"error-rate" placeholder:"N" default:"512" validate:"min=1,max=1000000" help:"Faults and errors of a guest in a second that may stop the card's engines, on average; eight times as many may come at once. A guest with more is quarantined."`
	TableRate   Size          `yaml:"table-rate" placeholder:"SIZE" default:"512MiB" validate:"min=1MiB,max=1TiB" help:"Work on page tables for one guest in a second, on average; the guest waits for more. 1GiB is about one whole processor: eight bytes that are only compared count as 1, one translated entry counts as 128."`
	MapAliases  int           `yaml:"map-aliases" placeholder:"N" default:"1024" validate:"min=1,max=65536" help:"Pages of a guest's mapped windows that may show memory which another page already shows. Pages beyond that read as zeros and lose what the guest stores."`
	MapRuns     int           `yaml:"map-runs" placeholder:"N" default:"2048" validate:"min=8,max=16384" help:"Pieces in which the pages of a guest's mapped windows may lie. Each takes two mappings of the process. Pages beyond that read as zeros and lose what the guest stores."`
	QueueLimits
}

// Default is the configuration without a file or flags.
func Default() *Config {
	c := new(Config)
	setDefaults(c)
	return c
}

// setDefaults sets options to the defaults in their tags.
func setDefaults(target any) {
	for _, o := range options(target) {
		if text, ok := o.tag.Lookup("default"); ok {
			if err := o.set(text); err != nil {
				panic(fmt.Sprintf("config: default of %s: %v", o.path, err))
			}
		}
	}
}

// Override takes the options whose flags are in set from the values of the flags, which
// [ParseFlag] has read.
func (c *Config) Override(flags *Config, set []string) {
	from := options(flags)
	for i, o := range options(c) {
		if slices.Contains(set, o.flag) {
			o.value.Set(from[i].value)
			c.given.settings = append(c.given.settings, setting{key: o.path, where: "--" + o.flag})
		}
	}
}

// Given reports whether the user gave the option at path.
func (c *Config) Given(path string) bool { return c.given.Given(path) }

// Where names the option at path as the user wrote it: the flag, or its place in the file.
func (c *Config) Where(path string) string {
	if c.Given(path) {
		return c.given.Where(path)
	}
	return fmt.Sprintf("--%s (or %s in the file)", find(options(c), path).flag, path)
}

// Check completes the virtual GPUs and holds everything against each other, before anything
// starts. After errors of a file or of texts it finds what else is wrong, but for what does not fit.
func (c *Config) Check() error {
	var errs []error
	errs = append(errs, c.inherit(ControlSocket, &c.Control, &c.given, "control", "control-access"), c.inherit(WholeSocket, &c.Socket, &c.given, "socket", "access"))
	if c.Card.Kind == Nvidia {
		errs = append(errs, c.settleNvidia())
	}
	c.settleScheduler()
	s := c.Schedule()
	if _, err := s.Config(); err != nil {
		errs = append(errs, &Error{Where: c.Where("scheduler.policy"), Reason: err.Error()})
	}
	errs = append(errs, c.checkProfiles(), c.checkCard())
	c.GPUs = nil
	for _, e := range c.gpus {
		g, err := c.complete(e)
		c.GPUs, errs = append(c.GPUs, g), append(errs, err)
	}
	errs = append(errs, c.fitNames(c.GPUs))
	if err := errors.Join(errs...); err != nil || c.failed {
		return err
	}
	if len(c.GPUs) == 0 && c.Socket != "" && c.Card.VRAM > gf100.MaxVRAM {
		return &Error{c.Where("card.vram"), c.Card.VRAM.String(), fmt.Sprintf("a GF100 has at most %v, and %s gives the whole card to one guest; give it less, or share it among GPUs", Size(gf100.MaxVRAM), c.Where("socket"))}
	}
	if len(c.GPUs) == 0 {
		return nil
	}
	if c.Socket != "" {
		return &Error{c.Where("socket"), c.Socket, "gives the whole card to one guest, but " + c.GPUs[0].at + " shares it; remove one of them"}
	}
	return c.Fit(c.GPUs)
}

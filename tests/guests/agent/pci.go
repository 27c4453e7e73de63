package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

const pciDevices = "/sys/bus/pci/devices/"

const vendorNVIDIA = 0x10de

// PCI lists functions as sysfs shows them.
func (s *System) PCI(a proto.PCIArgs) (proto.PCIResult, error) {
	res := proto.PCIResult{Functions: []proto.PCIFunction{}}
	for _, dir := range s.glob(pciDevices + "*") {
		f, err := s.function(dir)
		if err != nil {
			return res, fmt.Errorf("%s: %w", dir, err)
		}
		if a.Vendor == 0 || a.Vendor == f.Vendor {
			res.Functions = append(res.Functions, f)
		}
	}
	return res, nil
}

func (s *System) function(dir string) (f proto.PCIFunction, err error) {
	values := make(map[string]uint64)
	for _, name := range []string{"vendor", "device", "class", "revision", "irq"} {
		if values[name], err = s.number(dir + "/" + name); err != nil {
			return f, err
		}
	}
	f = proto.PCIFunction{
		Address: filepath.Base(dir), Vendor: uint16(values["vendor"]), Device: uint16(values["device"]),
		Class: uint32(values["class"]), Revision: uint8(values["revision"]), IRQ: int(values["irq"]),
	}
	if link, err := os.Readlink(s.path(dir + "/driver")); err == nil {
		f.Driver = filepath.Base(link)
	}
	resources, err := os.ReadFile(s.path(dir + "/resource"))
	if err != nil {
		return f, err
	}
	if f.BARs, err = parseBARs(string(resources)); err != nil {
		return f, err
	}
	config, err := os.ReadFile(s.path(dir + "/config"))
	if err != nil {
		return f, err
	}
	f.Capabilities = parseCapabilities(config)
	f.IRQMode = s.irqMode(dir, f.IRQ)
	return f, nil
}

// irqMode reads what the driver has set up: msi_irqs holds one file a message, with its kind.
func (s *System) irqMode(dir string, irq int) string {
	for _, p := range s.glob(dir + "/msi_irqs/*") {
		if mode, err := s.read(p); err == nil {
			return mode
		}
	}
	if irq == 0 {
		return "none"
	}
	return "intx"
}

// parseBARs reads the first six lines of a resource file: start, end, flags.
func parseBARs(text string) ([]proto.PCIBAR, error) {
	bars := []proto.PCIBAR{}
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if i == 6 || len(fields) != 3 {
			break
		}
		var v [3]uint64
		for k := range v {
			var err error
			if v[k], err = strconv.ParseUint(fields[k], 0, 64); err != nil {
				return nil, err
			}
		}
		if v[2] != 0 {
			bars = append(bars, proto.PCIBAR{Index: i, Size: v[1] - v[0] + 1})
		}
	}
	return bars, nil
}

// parseCapabilities walks the list in configuration space.
func parseCapabilities(config []byte) []int {
	caps := []int{}
	if len(config) < 0x40 || config[0x06]&0x10 == 0 {
		return caps
	}
	for at := config[0x34] &^ 3; at >= 0x40 && int(at)+1 < len(config) && len(caps) < 48; at = config[at+1] &^ 3 {
		caps = append(caps, int(config[at]))
	}
	return caps
}

// card finds the address of the first NVIDIA display function.
func (s *System) card() (string, error) {
	all, err := s.PCI(proto.PCIArgs{Vendor: vendorNVIDIA})
	if err != nil {
		return "", err
	}
	for _, f := range all.Functions {
		if f.Class>>16 == 3 {
			return f.Address, nil
		}
	}
	return "", errors.New("no NVIDIA display function on the PCI bus")
}

// Bind takes the card from nouveau and gives it back.
func (s *System) Bind(a proto.BindArgs) (res proto.BindResult, err error) {
	address, err := s.card()
	if err != nil {
		return res, err
	}
	steps := map[string][]string{"": {"unbind", "bind"}, "cycle": {"unbind", "bind"}, "unbind": {"unbind"}, "bind": {"bind"}}[a.Action]
	if steps == nil {
		return res, fmt.Errorf("action %q: want bind, unbind or cycle", a.Action)
	}
	for i := range max(a.Count, 1) {
		for _, step := range steps {
			if err := s.write("sys/bus/pci/drivers/nouveau/"+step, address); err != nil {
				return res, fmt.Errorf("cycle %d: %w", i+1, err)
			}
		}
		res.Cycles = append(res.Cycles, proto.BindCycle{Nodes: s.glob("dev/dri/*[0-9]")})
	}
	return res, nil
}

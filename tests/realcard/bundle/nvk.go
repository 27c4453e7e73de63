package main

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// nvk is where a guest's Mesa has its Vulkan driver for NVIDIA's GPUs.
const nvk = "usr/lib/x86_64-linux-gnu/libvulkan_nouveau.so"

// edit replaces bytes of a file: hex digits.
type edit struct {
	at       int
	old, new string
}

// build is one build of NVK, with what makes its machine code do what docs/patches/mesa-hopper.patch does in the source.
// Code that needs more room stands after the last section of its segment, where the page is empty; the segment grows over it.
type build struct {
	version string
	edits   []edit
}

// builds are Debian's, by build ID.
var builds = map[string]build{
	"31f0b1f20272a9a89f25a6a9c6f4f1c286c8d614": {"26.1.6-1~bpo13+1", []edit{
		{0x280, "31f0b1f2", "ce0f4e0d"},                    // another build ID: Mesa keeps compiled programs for each
		{0x3dbb2f, "80782064", "8078205a"},                 // OpBra::encode: sm >= 90
		{0x3d7ffe, "807e2064", "807e205a"},                 // OpR2UR::encode: sm >= 90
		{0x2a724f, "c74424680c000000", "c74424680f000000"}, // instr_latency: 15 cycles
		{0x272b0b, "eb00488b7c2450", "e950df4e006690"},     // nak_fill_qmd: jmp 760a60
		{0x760a60, strings.Repeat("00", 21), "818c24e801000000001f01488b7c2450e99d20b1ff"},
		{0x1d3175, "c746fc000000ff", "e906d958006690"}, // nvk_push_dispatch_state_init: jmp 760a80
		{0x760a80, strings.Repeat("00", 30), "c746fc000000ff66817ee4c0cb720ac706eb2101804883c604e9de26a7ff"},
		{0x98, "59da68000000000059da680000000000", "9eda6800000000009eda680000000000"}, // the segment's size
	}},
	"a7e8bf6baedeaeb971466e87bbedd2bcc21b67e4": {"26.2.6-1", []edit{
		{0x280, "a7e8bf6b", "58174094"},
		{0x3920cf, "80782064", "8078205a"},
		{0x3b1e0e, "807e2064", "807e205a"},
		{0x25a794, "c74424580c000000", "c74424580f000000"},
		{0x24c5dd, "eb00488b7c2460", "e93ed655006690"},
		{0x7a9c20, strings.Repeat("00", 21), "818c24f801000000001f01488b7c2460e9af29aaff"},
		{0x1c775a, "c740fc000000ff", "e9e1245e006690"},
		{0x7a9c40, strings.Repeat("00", 30), "c740fc000000ff668178e4c0cb720ac700eb2101804883c004e903dba1ff"},
		{0x98, "195c6f0000000000195c6f0000000000", "5e5c6f00000000005e5c6f0000000000"},
	}},
}

// unknownBuild is the error of a build of NVK that mend cannot change.
type unknownBuild struct{ error }

// mendOrWarn mends a file, or leaves it as it is and says so: Debian's next upload is a build that is not known here.
func mendOrWarn(file string, w io.Writer) error {
	err := mend(file)
	if _, is := errors.AsType[unknownBuild](err); is {
		fmt.Fprintf(w, "bundle: warning: NVK stays as it is, and compute on Hopper needs the mended one: %v\n", err)
		return nil
	}
	return err
}

// mend makes a file that is a build of NVK run programs on Hopper. Other links to the file keep the old one.
func mend(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if data, err = mended(data); err != nil {
		return fmt.Errorf("%s: %w; or build Mesa with docs/patches/mesa-hopper.patch, and name its folder in MESA_OVER", file, err)
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func mended(data []byte) ([]byte, error) {
	id, err := buildID(data)
	if err != nil {
		return nil, err
	}
	b, ok := builds[id]
	if !ok {
		var known []string
		for _, of := range slices.Sorted(maps.Keys(builds)) {
			known = append(known, builds[of].version)
		}
		return nil, unknownBuild{fmt.Errorf("build ID %q of NVK is not known; want Debian's Mesa %s", id, strings.Join(known, " or "))}
	}
	data = slices.Clone(data)
	for _, e := range b.edits {
		old, err := hex.DecodeString(e.old)
		if err != nil {
			return nil, err
		}
		change, err := hex.DecodeString(e.new)
		if err != nil || len(change) != len(old) {
			return nil, fmt.Errorf("edit at %#x: %q cannot take the place of %q", e.at, e.new, e.old)
		}
		if e.at+len(old) > len(data) || !bytes.Equal(data[e.at:e.at+len(old)], old) {
			return nil, fmt.Errorf("at %#x it does not have %s, which Debian's Mesa %s has there", e.at, e.old, b.version)
		}
		copy(data[e.at:], change)
	}
	return data, nil
}

// buildID reads what the linker wrote to tell one build from another: the note's third part.
func buildID(data []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	const head = 16 // the sizes, the kind, "GNU"
	if s := f.Section(".note.gnu.build-id"); s != nil {
		if note, err := s.Data(); err == nil && len(note) > head {
			return hex.EncodeToString(note[head:]), nil
		}
	}
	return "", fmt.Errorf("the library has no build ID")
}

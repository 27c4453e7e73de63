// Command hook lets KubeVirt attach GPUs of Umbra to a machine, for libvirt itself knows no vfio-user. KubeVirt's
// sidecar-shim runs it as onDefineDomain, with the machine as JSON and its libvirt domain as XML. It writes
// the domain with QEMU's arguments for the GPUs of the machine's annotation.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/umbra-gpu/umbra/dra/plugin"
)

// annotation lists the GPUs of a machine: CLAIM or CLAIM/INDEX, with commas between them. The claim
// is one of spec.resourceClaims.
const annotation = plugin.Driver + "/gpus"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "onDefineDomain:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("onDefineDomain", flag.ContinueOnError)
	vmi := flags.String("vmi", "", "the VirtualMachineInstance, as JSON")
	domain := flags.String("domain", "", "the libvirt domain, as XML")
	if err := flags.Parse(args); err != nil {
		return err
	}
	sockets, err := socketsOf(*vmi)
	if err != nil {
		return err
	}
	changed, err := attach(*domain, sockets)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, changed)
	return err
}

// socketsOf returns the sockets of a VirtualMachineInstance's GPUs, as QEMU sees them.
func socketsOf(vmi string) (out []string, err error) {
	var m struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			ResourceClaims []struct {
				Name              string `json:"name"`
				ResourceClaimName string `json:"resourceClaimName"`
			} `json:"resourceClaims"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(vmi), &m); err != nil {
		return nil, fmt.Errorf("--vmi: %w; give a VirtualMachineInstance as JSON", err)
	}
	folders := make(map[string]string)
	for _, c := range m.Spec.ResourceClaims {
		folders[c.Name] = cmp.Or(c.ResourceClaimName, c.Name) // a claim that is made of a template has the name here
	}
	for _, of := range strings.FieldsFunc(m.Metadata.Annotations[annotation], func(r rune) bool { return r == ',' || r == ' ' }) {
		claim, number, indexed := strings.Cut(of, "/")
		folder := folders[claim]
		if folder == "" {
			return nil, fmt.Errorf("annotation %s: %s: there is no such claim; spec.resourceClaims has %q", annotation, claim, slices.Sorted(maps.Keys(folders)))
		}
		index := uint64(0)
		if indexed {
			if index, err = strconv.ParseUint(number, 10, 8); err != nil {
				return nil, fmt.Errorf("annotation %s: %s: %q must be 0 to 255, the number of a GPU in its claim", annotation, of, number)
			}
		}
		out = append(out, plugin.ContainerSocket(folder, int(index)))
	}
	return out, nil
}

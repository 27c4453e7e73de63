package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/api"
)

type gpuAttachCmd struct {
	server
	Name   string `arg:"" help:"Name of the GPU."`
	Format string `default:"qemu" enum:"qemu,libvirt,cloud-hypervisor,json" help:"For whom: qemu, libvirt, cloud-hypervisor, or json, which has all."`
}

func (c *gpuAttachCmd) Run(ctx context.Context, out output) error {
	c.JSON = c.JSON || c.Format == "json"
	return ask(&c.server, out, func(k *api.Client) (api.Attachment, error) {
		g, err := k.Show(ctx, c.Name)
		if err != nil {
			return api.Attachment{}, err
		}
		return attachment(&g.GPU), nil
	}, func(b *strings.Builder, a *api.Attachment) {
		b.WriteString(map[string]string{"qemu": shellLines(a.QEMU), "libvirt": a.Libvirt, "cloud-hypervisor": shellLines(a.CloudHypervisor)}[c.Format])
	})
}

// attachment says how machines attach to a GPU.
func attachment(g *api.GPU) api.Attachment {
	return api.Attachment{
		GPU: g.Name, Socket: g.Socket, QEMU: qemuArgs(g.Socket), Libvirt: libvirtElements(g.Socket),
		CloudHypervisor: []string{"--memory", "size=2G,shared=on", "--user-device", "socket=" + g.Socket},
	}
}

// qemuArgs are QEMU's arguments that attach the GPU at a socket. The server maps the
// guest's memory, so the memory must be shared; any size works if it is the same in both.
func qemuArgs(socket string) []string {
	return []string{
		"-machine", "q35,memory-backend=mem",
		"-m", "2G",
		"-object", "memory-backend-memfd,id=mem,size=2G,share=on",
		"-device", qemuDevice(socket),
	}
}

func qemuDevice(socket string) string {
	at, _ := json.Marshal(socket) // strings always encode
	return fmt.Sprintf(`{"driver":"vfio-user-pci","socket":{"path":%s,"type":"unix"}}`, at)
}

// libvirtElements are those of a domain. libvirt itself knows no vfio-user: it passes the device on.
func libvirtElements(socket string) string {
	var device strings.Builder
	_ = xml.EscapeText(&device, []byte(qemuDevice(socket))) // a strings.Builder takes everything
	return `<!-- In <domain type="kvm" xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0">, whose machine is q35 -->
<memoryBacking>
  <source type="memfd"/>
  <access mode="shared"/>
</memoryBacking>
<qemu:commandline>
  <qemu:arg value="-device"/>
  <qemu:arg value="` + device.String() + `"/>
</qemu:commandline>
`
}

// shellLines writes arguments for a shell, an option and its value to a line.
func shellLines(args []string) string {
	var b strings.Builder
	for i, a := range args {
		sign := " "
		if strings.HasPrefix(a, "-") {
			sign = " \\\n  "
		}
		if i == 0 {
			sign = "  "
		}
		if strings.ContainsAny(a, " '\"{}$`\\&;|<>()*?[]#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(sign + a)
	}
	return b.String() + "\n"
}

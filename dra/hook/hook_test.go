package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const testedVMI = `{"metadata":{"annotations":{"umbra-gpu.github.io/gpus":"gpu, other/1"}},
	"spec":{"resourceClaims":[{"name":"gpu","resourceClaimTemplateName":"t"},{"name":"other","resourceClaimName":"shared-claim"}]}}`

const (
	testedArgs = `<qemu:arg value="-device"/><qemu:arg value="{&quot;driver&quot;:&quot;vfio-user-pci&quot;,&quot;socket&quot;:{&quot;path&quot;:&quot;/run/umbra/gpu/0/gpu.sock&quot;,&quot;type&quot;:&quot;unix&quot;}}"/>` +
		`<qemu:arg value="-device"/><qemu:arg value="{&quot;driver&quot;:&quot;vfio-user-pci&quot;,&quot;socket&quot;:{&quot;path&quot;:&quot;/run/umbra/shared-claim/1/gpu.sock&quot;,&quot;type&quot;:&quot;unix&quot;}}"/>`
	xmlns   = ` xmlns:qemu="http://libvirt.org/schemas/domain/qemu/1.0"`
	backing = `<memoryBacking><source type="memfd"/><access mode="shared"/></memoryBacking>`
)

// TestDomain edits domains, of which everything else stays as it was.
func TestDomain(t *testing.T) {
	commandline := `<qemu:commandline>` + testedArgs + `</qemu:commandline>`
	other := ` <metadata><k:v xmlns:k="http://kubevirt.io"><uid>1</uid></k:v></metadata><!-- </domain> -->` + "\n"
	for name, c := range map[string]struct{ domain, want string }{
		"nothing there": {`<domain type="kvm"><name>a</name></domain>`, `<domain type="kvm"` + xmlns + `><name>a</name>` + commandline + backing + `</domain>`},
		"as KubeVirt writes it": {
			"<domain" + xmlns + ">\n" + other + "<memoryBacking><hugepages/></memoryBacking>\n <qemu:commandline><qemu:arg value=\"-x\"/></qemu:commandline>\n</domain>\n",
			"<domain" + xmlns + ">\n" + other + "<memoryBacking><hugepages/><source type=\"memfd\"/><access mode=\"shared\"/></memoryBacking>\n <qemu:commandline><qemu:arg value=\"-x\"/>" + testedArgs + "</qemu:commandline>\n</domain>\n"},
		"memory that is not shared": {`<domain` + xmlns + `><memoryBacking><access mode="private"/><source type="anonymous"/></memoryBacking><qemu:commandline/></domain>`,
			`<domain` + xmlns + `><memoryBacking><access mode="shared"/><source type="memfd"/></memoryBacking>` + commandline + `</domain>`},
		"memory in a file, another prefix": {`<domain xmlns:q="` + qemuNamespace + `"><memoryBacking><source type="file"/></memoryBacking></domain>`,
			`<domain xmlns:q="` + qemuNamespace + `"><memoryBacking><source type="file"/><access mode="shared"/></memoryBacking>` + strings.ReplaceAll(commandline, "qemu:", "q:") + `</domain>`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, run([]string{"--vmi", testedVMI, "--domain", c.domain}, &out))
			require.Equal(t, c.want, out.String())
			out.Reset()
			require.NoError(t, run([]string{"--vmi", "{}", "--domain", c.domain}, &out))
			require.Equal(t, c.domain, out.String(), "without an annotation")
		})
	}
}

func TestRefused(t *testing.T) {
	vmi := func(gpus string) string { return strings.Replace(testedVMI, "gpu, other/1", gpus, 1) }
	for _, c := range []struct{ vmi, domain, want string }{
		{"", "<domain></domain>", "--vmi: unexpected end of JSON input; give a VirtualMachineInstance as JSON"},
		{vmi("disk"), "<domain></domain>", `annotation umbra-gpu.github.io/gpus: disk: there is no such claim; spec.resourceClaims has ["gpu" "other"]`},
		{vmi("gpu/-1"), "<domain></domain>", `annotation umbra-gpu.github.io/gpus: gpu/-1: "-1" must be 0 to 255, the number of a GPU in its claim`},
		{testedVMI, "", "--domain: must be an element <domain>"},
		{testedVMI, "<network/>", "--domain: must be an element <domain>"},
		{testedVMI, "<domain><name></domain>", "--domain: etree: invalid XML format; give a libvirt domain as XML"},
		{testedVMI, "<domain", "--domain: XML syntax error on line 1: unexpected EOF; give a libvirt domain as XML"},
	} {
		require.EqualError(t, run([]string{"--vmi", c.vmi, "--domain", c.domain}, io.Discard), c.want)
	}
}

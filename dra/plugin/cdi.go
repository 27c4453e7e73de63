package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

const (
	cdiKind    = Driver + "/gpu"
	cdiVersion = "0.6.0" // the first with annotations

	annotationQEMU = Driver + "/qemu-device" // the argument that attaches a machine
	annotationGPU  = Driver + "/gpu"         // a gpu in JSON

	unfinished = ".unfinished" // ends the name of a file that is being written
)

func (p *Plugin) cdiPath(claim string) string {
	return filepath.Join(p.CDI, "dra-"+claim+"-"+Driver+".json")
}

// writeCDI writes the file by which containers get the GPUs of a claim, each as a CDI device of its name. A
// container gets the folder of a socket: a server that starts again makes another socket in it.
func (p *Plugin) writeCDI(claim types.UID, gpus []gpu) error {
	spec := cdi.Spec{Version: cdiVersion, Kind: cdiKind}
	for _, g := range gpus {
		again, err := json.Marshal(g)
		if err != nil {
			return err
		}
		argument := QEMUDevice(g.inside)
		spec.Devices = append(spec.Devices, cdi.Device{
			Name:        g.Name,
			Annotations: map[string]string{annotationQEMU: argument, annotationGPU: string(again)},
			ContainerEdits: cdi.ContainerEdits{
				Env:    []string{g.variable + "=" + argument},
				Mounts: []*cdi.Mount{{HostPath: filepath.Dir(g.Socket), ContainerPath: filepath.Dir(g.inside), Options: []string{"ro", "nosuid", "nodev", "noexec", "bind"}}},
			},
		})
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	path := p.cdiPath(string(claim))
	if err := os.WriteFile(path+unfinished, data, 0o644); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// prepared lists the GPUs of all files, without those of files that it cannot read, which the error names.
func (p *Plugin) prepared() (gpus []gpu, err error) {
	paths, err := filepath.Glob(p.cdiPath("*"))
	for _, path := range paths {
		of, bad := preparedIn(path)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w; the driver wrote it otherwise, remove it", path, bad))
			continue
		}
		gpus = append(gpus, of...)
	}
	return gpus, err
}

func preparedIn(path string) (gpus []gpu, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var spec cdi.Spec
	err = json.Unmarshal(data, &spec)
	for _, d := range spec.Devices {
		var g gpu
		err = errors.Join(err, json.Unmarshal([]byte(d.Annotations[annotationGPU]), &g))
		gpus = append(gpus, g)
	}
	return gpus, err
}

package config

import (
	"maps"
)

// Change returns a GPU that is there with options changed as keys and values say:
// shadow.sync=lazy,shadow.scan=full. Only those whose row says live can be.
func (l *Layer) Change(g GPU, text string) (GPU, error) {
	changed := g
	changed.entry = entry{at: "gpu " + g.Name, given: make(map[string]string)}
	err := changed.assign(changed.at, text, "shadow.sync=lazy", option.live)
	if err == nil {
		err = checkOptions(&changed)
	}
	if err == nil {
		err = changed.checkShadow()
	}
	if err != nil {
		return g, err
	}
	where := changed.given
	changed.entry = entry{at: g.at, given: maps.Clone(g.given)}
	maps.Copy(changed.given, where)
	return changed, nil
}

// Live lists the options that can be changed while the GPU is there, by key.
func (g *GPU) Live() map[string]any {
	out := make(map[string]any)
	for _, o := range options(g) {
		if o.live() {
			out[o.path] = o.value.Interface()
		}
	}
	return out
}

func (o option) live() bool { _, ok := o.tag.Lookup("live"); return ok }

// notLive says why a key that there is cannot be set.
const notLive = "cannot be changed while the GPU is there"

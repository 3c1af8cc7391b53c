package fakenvml

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sys is the entity of what belongs to the machine and not to a GPU: NVML's life, versions, the number of GPUs, waiting
// for events.
const Sys = "sys"

// Every is the key of a fault in all calls of an entity. On a GPU it includes the calls of its MIG devices.
const Every = "*"

// GPU returns the entity of the GPU with the given index.
func GPU(index int) string { return fmt.Sprintf("gpu%d", index) }

// MIG returns the entity of the MIG device in the given slot of a GPU.
func MIG(gpu, slot int) string { return fmt.Sprintf("gpu%d.mig%d", gpu, slot) }

// Key returns the key of a C function that answers differently for each selector (a clock, a link, a sensor): the
// integers that NVML takes, in the order of the function's parameters. It panics on a selector that is no integer.
func Key(function string, selectors ...any) string {
	for _, s := range selectors {
		v := reflect.ValueOf(s)
		if !v.CanInt() && !v.CanUint() {
			panic(fmt.Sprintf("fakenvml: %s: selector %v (%T) is no integer", function, s, s))
		}
		text, _ := word(s)
		function += "/" + text
	}
	return function
}

// AllScopes is the scope of a field value that sums over all links.
const AllScopes = 0xFFFFFFFF

// Field returns the key of a field value. Scope 0 is that of a caller who gives none.
func Field(id, scope uint32) string {
	switch scope {
	case 0:
		return Key("field", id)
	case AllScopes:
		return Key("field", id) + "/all"
	}
	return Key("field", id, scope)
}

// A Fault is what happens to a call instead of, or before, its answer.
type Fault string

// Hang blocks the call, as a driver does that waits for a dead GPU, until a file without this fault is written.
const Hang Fault = "!hang"

// Error makes the call return an NVML code; nvml.Return fits.
func Error[T ~int | ~int32](code T) Fault { return Fault(fmt.Sprintf("!error %d", int64(code))) }

// Delay makes the call slow; it has the resolution of a millisecond.
func Delay(d time.Duration) Fault { return Fault(fmt.Sprintf("!delay %d", d.Milliseconds())) }

// File is what the fake library shall answer, in NVML's raw units. What it does not mention is not supported. The zero
// value is empty and ready to use; it is not safe for concurrent use.
type File struct {
	values   map[string]map[string][]string
	faults   map[string]map[string]Fault
	sequence uint64
	err      error
}

// Set makes values the answer to a key, replacing what was there; no values at all make it an empty list. Strings are
// written as they are, booleans as 1 and 0, and numbers of any named type as numbers.
func (f *File) Set(entity, key string, values ...any) {
	f.Unset(entity, key)
	f.Add(entity, key, values...)
}

// Add appends one element to the list under a key: a process, a sample, an event.
func (f *File) Add(entity, key string, values ...any) {
	text, err := rest(values)
	if err == nil {
		err = errors.Join(checkName(entity), checkName(key))
	}
	if err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("set %q %q: %w", entity, key, err))
		return
	}
	if f.values == nil {
		f.values = map[string]map[string][]string{}
	}
	if f.values[entity] == nil {
		f.values[entity] = map[string][]string{}
	}
	f.values[entity][key] = append(f.values[entity][key], text)
}

// Unset makes a key not supported.
func (f *File) Unset(entity, key string) { delete(f.values[entity], key) }

// Remove drops all that is said of an entity. A MIG device of which nothing is said does not exist.
func (f *File) Remove(entity string) {
	delete(f.values, entity)
	delete(f.faults, entity)
}

// Event appends an event that each event set registered for its GPU and type delivers once, unless it was there before
// the registration. The instance is, for an event of a MIG device, its GPU instance and compute instance.
func (f *File) Event(gpu string, eventType, data uint64, instance ...uint32) {
	f.sequence++
	values := []any{eventType, data, f.sequence}
	for _, id := range instance {
		values = append(values, id)
	}
	f.Add(gpu, "event", values...)
}

// Fault lets a fault befall the calls of a key, of a whole function (a key without its selectors) or of Every call.
func (f *File) Fault(entity, key string, fault Fault) {
	if err := errors.Join(checkName(entity), checkName(key)); err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("fault %q %q: %w", entity, key, err))
		return
	}
	if f.faults == nil {
		f.faults = map[string]map[string]Fault{}
	}
	if f.faults[entity] == nil {
		f.faults[entity] = map[string]Fault{}
	}
	f.faults[entity][key] = fault
}

// Clear ends a fault and releases the calls that hang in it, once the file is written.
func (f *File) Clear(entity, key string) { delete(f.faults[entity], key) }

// String returns the file's text: sorted, so that equal contents are equal texts.
func (f *File) String() string {
	var b strings.Builder
	for _, entity := range slices.Sorted(maps.Keys(f.values)) {
		for _, key := range slices.Sorted(maps.Keys(f.values[entity])) {
			for _, text := range f.values[entity][key] {
				b.WriteString(strings.TrimRight(entity+" "+key+" "+text, " ") + "\n")
			}
		}
	}
	for _, entity := range slices.Sorted(maps.Keys(f.faults)) {
		for _, key := range slices.Sorted(maps.Keys(f.faults[entity])) {
			fmt.Fprintf(&b, "%s %s %s\n", entity, key, f.faults[entity][key])
		}
	}
	return b.String()
}

// Write replaces the file at path at once, so that the library never sees half of it. It fails, and writes nothing, if
// anything that was set cannot be expressed.
func (f *File) Write(path string) (err error) {
	if f.err != nil {
		return fmt.Errorf("write values of the fake NVML to %s: %w", path, f.err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write values of the fake NVML: %w", err)
	}
	defer func() {
		if rm := os.Remove(tmp.Name()); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			err = errors.Join(err, rm)
		}
	}()
	_, err = tmp.WriteString(f.String())
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("write values of the fake NVML: %w", err)
	}
	return os.Rename(tmp.Name(), path)
}

func checkName(name string) error {
	if name == "" || strings.HasPrefix(name, "#") || strings.ContainsAny(name, " \t\r\n") {
		return fmt.Errorf("%q cannot be an entity or a key: one word that is no comment", name)
	}
	return nil
}

func rest(values []any) (string, error) {
	words := make([]string, len(values))
	for i, v := range values {
		var err error
		if words[i], err = word(v); err != nil {
			return "", err
		}
	}
	text := strings.Join(words, " ")
	if strings.ContainsAny(text, "\x00\n") || strings.HasPrefix(text, "!") {
		return "", fmt.Errorf("value %q holds a line break or starts like a fault", text)
	}
	return text, nil
}

// word goes by a value's kind, because NVML's named integers print themselves as text.
func word(v any) (string, error) {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.String:
		return r.String(), nil
	case reflect.Bool:
		if r.Bool() {
			return "1", nil
		}
		return "0", nil
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(r.Float(), 'g', -1, 64), nil
	default:
		switch {
		case v != nil && r.CanInt():
			return strconv.FormatInt(r.Int(), 10), nil
		case v != nil && r.CanUint():
			return strconv.FormatUint(r.Uint(), 10), nil
		}
		return "", fmt.Errorf("value %v (%T) is neither text nor number", v, v)
	}
}

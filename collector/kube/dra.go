package kube

import (
	"encoding/json"
	"strings"
)

// GPUDriver is the name of NVIDIA's driver for dynamic resource allocation.
const GPUDriver = "gpu.nvidia.com"

// Claim is a resource claim: devices that are asked for by class and given by name.
type Claim struct {
	UID, Namespace, Name string
	Asks                 int // devices of NVIDIA's classes
	Given                []DeviceName
}

// ID is the claim's uid.
func (c Claim) ID() string { return c.UID }

// DeviceName is a device as its driver names it in the cluster.
type DeviceName struct{ Pool, Device string }

// DecodeClaim reads a resource claim, of any version since v1beta1.
func DecodeClaim(raw json.RawMessage) (Claim, error) {
	type request struct {
		DeviceClassName string
		AllocationMode  string
		Count           *int64
	}
	var o struct {
		Metadata Meta
		Spec     struct {
			Devices struct {
				Requests []struct {
					request
					Exactly        *request
					FirstAvailable []request
				}
			}
		}
		Status struct {
			Allocation *struct {
				Devices struct {
					Results []struct{ Driver, Pool, Device string }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Claim{}, notJSON(err)
	}
	c := Claim{UID: o.Metadata.UID, Namespace: name(o.Metadata.Namespace), Name: name(o.Metadata.Name)}
	for _, r := range o.Spec.Devices.Requests {
		ask := r.request
		if r.Exactly != nil {
			ask = *r.Exactly
		} else if len(r.FirstAvailable) > 0 {
			ask = r.FirstAvailable[0] // the one that is wanted most
		}
		if nvidiaClass(ask.DeviceClassName) {
			c.Asks += int(clamp(ask.Count, 1))
		}
	}
	if o.Status.Allocation != nil {
		for _, r := range o.Status.Allocation.Devices.Results {
			if r.Driver == GPUDriver {
				c.Given = append(c.Given, DeviceName{name(r.Pool), name(r.Device)})
			}
		}
	}
	return c, nil
}

// nvidiaClass reports whether a class of devices is GPUs or MIG instances: those that
// NVIDIA's driver brings along.
func nvidiaClass(class string) bool { return strings.HasSuffix(class, ".nvidia.com") }

// Slice is a part of what a driver offers on a node.
type Slice struct {
	UID, Node string
	Driver    string
	Pool      string
	Devices   []Device
}

// ID is the slice's uid.
func (s Slice) ID() string { return s.UID }

// Device is one device that a driver offers.
type Device struct {
	Name, UUID, Model, Profile string // Profile is that of a MIG instance
	Parent                     string // uuid of the GPU of a MIG instance
}

// DecodeSlice reads a resource slice, of any version since v1beta1. Of other drivers
// than NVIDIA's it keeps no devices.
func DecodeSlice(raw json.RawMessage) (Slice, error) {
	type attributes map[string]struct{ String string }
	var o struct {
		Metadata Meta
		Spec     struct {
			Driver, NodeName string
			Pool             struct{ Name string }
			Devices          []struct {
				Name       string
				Attributes attributes
				Basic      *struct{ Attributes attributes }
			}
		}
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return Slice{}, notJSON(err)
	}
	s := Slice{UID: o.Metadata.UID, Node: name(o.Spec.NodeName), Driver: name(o.Spec.Driver), Pool: name(o.Spec.Pool.Name)}
	if s.Driver != GPUDriver {
		return s, nil
	}
	for _, d := range o.Spec.Devices {
		a := d.Attributes
		if d.Basic != nil {
			a = d.Basic.Attributes
		}
		get := func(key string) string {
			if v := a[key].String; v != "" {
				return name(v)
			}
			return name(a[GPUDriver+"/"+key].String)
		}
		s.Devices = append(s.Devices, Device{Name: name(d.Name), UUID: get("uuid"), Model: get("productName"), Profile: get("profile"), Parent: get("parentUUID")})
	}
	return s, nil
}

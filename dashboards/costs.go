package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"gpuvigil/internal/metric"
)

// The uid of the dashboard is part of links to it.
const costsUID = "gpuvigil-costs"

// settled is the window over which the growth of what the ledger books is shown: it
// is exported as it is written, every 30 s.
const settled = "5m"

// notBusy matches the states that are paid for without any work.
const notBusy = `state!="busy"`

// costs says what the GPUs cost, how much of it was worth nothing, and whose it was.
func costs() (dashboard.Dashboard, error) {
	return page{
		uid: costsUID, title: "gpuvigil costs", since: "24h", refresh: "1m",
		description: "What the GPUs cost, how much of that was busy, idle, held or free, and whose it was. Currencies are never added up.",
		gpus:        true,
		rows: []row{
			{4000, "What it costs", spent()},
			{4100, "Whose it was", owners()},
			{4200, "Energy", energy()},
			{4300, "Prices", prices()},
		},
	}.build()
}

// spent shows money by what the GPUs were.
func spent() []cog.Builder[dashboard.Panel] {
	const states = "What a GPU was: busy worked; idle_held had a context open and did nothing; held_without_process was given to somebody who had none; " +
		"free was given to nobody; unavailable could not be used; unobserved is time of which nobody knows."
	perHour := func(legend, by string, s selector) query {
		return ask(legend, unitCount, "sum by ("+by+") (3600 * rate(%s["+settled+"]))", s)
	}
	over := func(legend string, s selector) query {
		return ask(legend, unitCount, "sum by (currency) (increase(%s[$__range]))", s)
	}
	return []cog.Builder[dashboard.Panel]{
		stats(panel{id: 4001, title: "Cost in the time range", w: 8, h: 5, absent: "no price is known, or nothing was booked",
			queries: []query{
				over("all, {{currency}}", sel(metric.OwnerCost)),
				over("not busy, {{currency}}", sel(metric.OwnerCost, notBusy)),
			}}),
		stats(panel{id: 4002, title: "Share of the money that was not busy", w: 8, h: 5, absent: "no price is known, or nothing was booked", note: states,
			queries: []query{
				ask("not busy, {{currency}}", unitShare, "sum by (currency) (increase(%s[$__range])) / sum by (currency) (increase(%s[$__range]))",
					sel(metric.OwnerCost, notBusy), sel(metric.OwnerCost)),
			}}),
		stats(panel{id: 4003, title: "Unobserved time", w: 8, h: 5, absent: "nothing was booked",
			note: "Time of GPUs in the time range of which nobody knows what they did, and GPUs of which no price is known.",
			queries: []query{
				ask("of the time", unitShare, `sum(increase(%s[$__range])) / sum(increase(%s[$__range])) or 0 * sum(increase(%[2]s[$__range]))`,
					sel(metric.OwnerSeconds, `state="unobserved"`), sel(metric.OwnerSeconds)),
				total("GPUs without a price", sel(metric.PriceMissing)).alarming("orange"),
			}}),
		stacked(panel{id: 4004, title: "Cost per hour by state", w: 12, h: 9, absent: "no price is known, or nothing was booked", note: states,
			queries: []query{perHour("{{state}} {{currency}}", "state, currency", sel(metric.OwnerCost))}}),
		stacked(panel{id: 4005, title: "GPUs by state", w: 12, h: 9, absent: "nothing was booked", note: states,
			queries: []query{ask("{{state}}", unitCount, "sum by (state) (rate(%s["+settled+"]))", sel(metric.OwnerSeconds))}}),
	}
}

// owners shows money by whose it was.
func owners() []cog.Builder[dashboard.Panel] {
	growth := func(legend, by string, s selector) query {
		return ask(legend, unitCount, "sum by ("+by+") (increase(%s[$__range]))", s)
	}
	const team, owner = "team, currency", "owner_kind, owner, team, currency"
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 4101, title: "Cost by team", w: 10, h: 9, absent: "no price is known, or nothing was booked",
			note: "Over the time range. Without a team: nobody's time, and owners whom no team was given.",
			queries: []query{
				growth("Cost", team, sel(metric.OwnerCost)),
				growth("Not busy", team, sel(metric.OwnerCost, notBusy)),
				ask("Spent this month", unitCount, "sum by (team, currency) (%s)", sel(metric.TeamSpent)),
				ask("At its end", unitCount, "sum by (team, currency) (%s)", sel(metric.TeamProjection, `bound="expected"`)),
				ask("At least", unitCount, "sum by (team, currency) (%s)", sel(metric.TeamProjection, `bound="low"`)),
				ask("At most", unitCount, "sum by (team, currency) (%s)", sel(metric.TeamProjection, `bound="high"`)),
				ask("Budget of a month", unitCount, "max by (team, currency) (%s)", sel(metric.TeamBudget)),
			}}, "team", "currency"),
		grid(panel{id: 4102, title: "Cost by owner", w: 14, h: 9, absent: "no price is known, or nothing was booked",
			queries: []query{
				growth("Cost", owner, sel(metric.OwnerCost)),
				growth("Idle", owner, sel(metric.OwnerCost, `state="idle_held"`)),
				growth("Without a process", owner, sel(metric.OwnerCost, `state="held_without_process"`)),
			}}, "owner_kind", "owner", "team", "currency"),
		graph(panel{id: 4103, title: "GPUs by owner", w: 24, h: 8, absent: "nothing was booked",
			queries: []query{ask("{{owner_kind}} {{owner}}", unitCount, "sum by (owner_kind, owner) (rate(%s["+settled+"]))", sel(metric.OwnerSeconds))}}),
	}
}

func energy() []cog.Builder[dashboard.Panel] {
	const by = "owner_kind, owner"
	slow := func(s selector) query {
		return ask("{{owner_kind}} {{owner}}", unitOf(s.row).perSecond, "sum by ("+by+") (rate(%s["+settled+"]))", s)
	}
	return []cog.Builder[dashboard.Panel]{
		stacked(panel{id: 4201, title: "Power by owner", w: 8, h: 8, absent: "nothing was booked", queries: []query{slow(sel(metric.OwnerEnergy))}}),
		graph(panel{id: 4202, title: "CO2 by owner", w: 8, h: 8, absent: "energy.carbon_g_per_kwh is not configured",
			note:    "In grams per hour.",
			queries: []query{ask("{{owner_kind}} {{owner}}", "massg", "sum by ("+by+") (3600 * rate(%s["+settled+"]))", sel(metric.OwnerCarbon))}}),
		graph(panel{id: 4203, title: "Cost of energy per hour by owner", w: 8, h: 8, absent: "energy.price_per_kwh is not configured",
			queries: []query{ask("{{owner_kind}} {{owner}} {{currency}}", unitCount, "sum by ("+by+", currency) (3600 * rate(%s["+settled+"]))", sel(metric.OwnerEnergyCost))}}),
	}
}

func prices() []cog.Builder[dashboard.Panel] {
	const by = "instance, gpu, price, currency, provider, region, source, as_of"
	return []cog.Builder[dashboard.Panel]{
		grid(panel{id: 4301, title: "Prices in force", w: 18, h: 8, absent: "no price is known",
			queries: []query{
				ask("", unitCount, "max by ("+by+") (%s)", sel(metric.PriceInfo)),
				ask("Per hour", unitCount, "max by (instance, gpu, currency) (%s)", sel(metric.PricePerHour)),
			}}, "instance", "gpu", "price", "currency", "provider", "region", "source", "as_of"),
		graph(panel{id: 4302, title: "The ledger", w: 6, h: 8,
			queries: []query{
				value(ofNode+" accounts", sel(metric.LedgerAccounts)),
				ask(ofNode+" GPUs of owners that were too many", unitCount, "sum by (instance) (rate(%s["+settled+"]))", sel(metric.LedgerFolded)),
				value(ofNode+" drained", sel(metric.Drained)),
			}}),
	}
}

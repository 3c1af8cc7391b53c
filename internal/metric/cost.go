package metric

// PriceKind is how a price came about: what anybody pays, and what was agreed on.
var PriceKind = &Dimension{Label: "price", Values: []string{"list", "contracted"}}

// Rows of what GPUs cost and whose time on them it was. The ledger makes them.
// Money has its currency as a label, so that no sum mixes two.
var (
	OwnerSeconds = row(Def{Entity: Account, Kind: Counter, Tier: Fast, Name: "vigil_owner_gpu_seconds_total", Dim: GPUState,
		Help: "Time of the GPU by owner and by what it was to the one who pays: for each GPU the sum is the time since the ledger began. Time that is free, unavailable or unobserved has no owner. A series that has not changed for an hour is left out until it does; a new one stands still for a minute, so that increase() misses nothing of it."})
	OwnerCost = row(Def{Entity: Account, Kind: Counter, Tier: Fast, Name: "vigil_owner_gpu_cost_total", Dim: GPUState, Labels: []string{"currency"},
		Help: "Cost of that time, in units of the currency: at the effective price, else the contracted one, else the list's. Absent without a price."})
	OwnerCostAt = row(Def{Entity: Account, Kind: Counter, Tier: Fast, Detail: true, Name: "vigil_owner_gpu_cost_at_price_total", Dim: GPUState, Labels: []string{"currency", "price"},
		Help: "Cost of that time at another price, in units of the currency: list or contracted, where there is one."})

	OwnerEnergy = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_energy_joules_total", Labels: []string{"owner_kind", "owner", "team", "model"},
		Help: "Energy of the owner's time on all GPUs of a model, by the GPUs' energy counters; a GPU's is split over its owners as its time is."})
	OwnerCarbon = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_carbon_grams_total", Labels: []string{"owner_kind", "owner", "team", "model"},
		Help: "CO2 equivalent that this energy and what the data centre used on top of it have caused. Absent without energy.carbon in the configuration."})
	OwnerEnergyCost = row(Def{Entity: Node, Kind: Counter, Tier: Fast, Name: "vigil_owner_energy_cost_total", Labels: []string{"owner_kind", "owner", "team", "model", "currency"},
		Help: "Cost of this energy and of what the data centre used on top of it, in units of the currency; it is in no other cost. Absent without a price of energy."})

	PriceInfo = row(Def{Entity: GPU, Kind: Info, Tier: Inventory, Name: "vigil_gpu_price_info",
		Labels: []string{"price", "currency", "provider", "region", "source", "as_of"},
		Help:   "The price by which the GPU's cost is counted, who says so and as of when; always 1."})
	PricePerHour = row(Def{Entity: GPU, Tier: Inventory, Name: "vigil_gpu_price_per_hour", Labels: []string{"currency"},
		Help: "Price of an hour of the GPU, in units of the currency."})
	PriceMissing = row(Def{Entity: GPU, Tier: Inventory, Max: 1, Name: "vigil_gpu_price_missing",
		Help: "1 for a GPU of which no price is known: its time is counted and costs nothing here. Give one under prices.own in the configuration."})

	TeamBudget = row(Def{Entity: Node, Tier: Inventory, Name: "vigil_team_budget_per_month", Labels: []string{"team", "currency"},
		Help: "What the team may spend on GPUs in a calendar month, in units of the currency, as budgets in the agent's configuration has it."})

	LedgerAccounts = row(Def{Entity: Agent, Name: "vigil_ledger_accounts",
		Help: "Accounts that the ledger keeps: one for each GPU, owner and state."})
	LedgerFolded = row(Def{Entity: Agent, Kind: Counter, Name: "vigil_ledger_folded_gpu_seconds_total",
		Help: "Time of GPUs that was booked to the owner other because there were more owners than the ledger keeps apart: 32 on a GPU in an hour, or 20000 accounts."})

	Drained = row(Def{Entity: Node, Tier: Fast, Max: 1, Name: "vigil_node_drained",
		Help: "1 while the file that host.drained_file names exists: nobody is to be given the node's GPUs. Absent without that setting."})
)

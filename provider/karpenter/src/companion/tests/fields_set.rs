//! Fields of `NodePools`, and what closes one.

use super::*;

#[test]
fn free_nodes_stay_for_the_window_of_the_pool_that_a_label_names() {
    let (mut state, now) = (State::default(), Instant::now());
    let with = |labels: Value, annotations: Value, after: &str| {
        let mut pool = node_pool(&json!({ "cpu": "1k" }));
        pool["metadata"]["labels"] = labels;
        pool["metadata"]["annotations"] = annotations;
        pool["spec"]["disruption"] = json!({ "consolidateAfter": after });
        tables(pool, 0)
    };
    let named = |of: &str| json!({ STEERED_LABEL: "true", RULES_LABEL: of });
    let mut windows = |tables: &Tables| {
        let made = look(&mut state, tables, None, now);
        (made.fields.set, made.fields.given_back, made.faults)
    };
    let (unnamed, ..) = windows(&with(json!({ STEERED_LABEL: "true" }), json!({}), "0s"));
    assert_eq!(unnamed, []);
    let (field, of) = (Field::ConsolidateAfter, || "gpu".to_owned());
    let mark = FieldMark { set: json!("900s"), was: Some(json!("0s")), why: "the window of pool pool".to_owned() };
    let marked = json!({ WINDOW_MARK: serde_json::to_string(&mark).unwrap() });
    assert_eq!(windows(&with(named("pool"), json!({}), "0s")).0, [(of(), field, mark.clone())]);
    let (set, back, faults) = windows(&with(named("pool"), marked.clone(), "900s"));
    assert!(set.is_empty() && back.is_empty() && faults.0.is_empty(), "{faults:?}");
    // Somebody's own value is what is given back later.
    let theirs = FieldMark { was: Some(json!("30s")), ..mark.clone() };
    assert_eq!(windows(&with(named("pool"), marked.clone(), "30s")).0, [(of(), field, theirs)]);
    assert_eq!(windows(&with(json!({}), marked, "900s")).1, [(of(), field, mark)]);
    let (.., faults) = windows(&with(named("poll"), json!({}), "0s"));
    assert!(faults.0["NodePool gpu"].contains("names poll, which is no pool of the policy; did you mean pool?"), "{faults:?}");
}

#[test]
fn a_share_of_removals_is_one_more_budget_next_to_the_owners() {
    let mut policy = policy();
    let windows = policy.pools[0].stabilization.as_mut().unwrap();
    windows.max_removals = Percent(20);
    let look = |pool: &Value| {
        let (tables, book) = (tables(pool.clone(), 0), book());
        let facts = tables.facts().unwrap();
        let inputs = Inputs::of(facts, &policy, &book, Instant::now());
        let fields = State::default().look(&inputs).fields;
        let of_budgets = |(_, field, mark): (String, Field, FieldMark)| (field == Field::Budgets).then_some(mark);
        (fields.set.into_iter().find_map(of_budgets), fields.given_back.into_iter().find_map(of_budgets))
    };
    let mut pool = node_pool(&Value::Null);
    pool["metadata"]["labels"][RULES_LABEL] = json!("pool");
    let (own, ours) = (json!({ "nodes": "10%" }), json!({ "nodes": "20%", "reasons": ["Empty", "Underutilized"] }));
    pool["spec"]["disruption"] = json!({ "budgets": [own] });
    let (set, _) = look(&pool);
    let set = set.unwrap();
    assert_eq!((set.set.clone(), set.was.clone()), (json!([own, ours]), Some(json!([own]))));
    // Set and unchanged, nothing more is written, and without the label it goes back.
    pool["spec"]["disruption"]["budgets"] = set.set.clone();
    pool["metadata"]["annotations"] = json!({ BUDGETS_MARK: serde_json::to_string(&set).unwrap() });
    assert_eq!(look(&pool), (None, None));
    // Its owner adds one to the list: that is what goes back later, without Stoker's own.
    let more = json!({ "nodes": "0", "schedule": "@daily", "duration": "1h" });
    let mut changed = pool.clone();
    changed["spec"]["disruption"]["budgets"] = json!([own, ours, more]);
    let (again, _) = look(&changed);
    assert_eq!(again.map(|mark| (mark.set, mark.was)), Some((json!([own, more, ours]), Some(json!([own, more])))));
    pool["metadata"]["labels"] = json!({ STEERED_LABEL: "true" });
    assert_eq!(look(&pool), (None, Some(set)));
}

#[test]
fn a_pool_makes_nothing_more_while_its_types_are_out_of_stock_or_its_budget_is_spent() {
    let mut book = book();
    let mut markets = Vec::new();
    for zone in ["use1-az1", "use1-az2"] {
        let place = Place {
            cloud: Cloud::new("aws").unwrap(),
            region: Region::new("us-east-1").unwrap(),
            zone: ZoneId::new(zone).unwrap(),
            instance_type: InstanceType::new("g6.2xlarge").unwrap(),
        };
        let quote = Quote { price: UsdPerHour(1), kind: QuoteKind::List, as_of: None, source: Arc::from("test") };
        let market = offer::Market { place, capacity_type: CapacityType::OnDemand };
        book.insert(market.clone(), Entry::Price(quote));
        markets.push(market);
    }
    let (policy, occupied) = (policy(), BTreeSet::new());
    let why = |used: &Used, rules: Option<&str>| {
        let mut pool = node_pool(&json!({ "cpu": "40" }));
        if let Some(rules) = rules {
            pool["metadata"]["labels"][RULES_LABEL] = json!(rules);
        }
        let (tables, now) = (tables(pool, 1), Instant::now());
        let facts = tables.facts().unwrap();
        let inputs = Inputs { used: Some(used), occupied: Some(&occupied), ..Inputs::of(facts, &policy, &book, now) };
        let look = State::default().look(&inputs);
        look.limits.first().map(|(_, mark)| (mark.set["cpu"], mark.why.split(';').next().unwrap().to_owned()))
    };
    let used = |sold_out: &[offer::Market], spent: Option<BudgetOf>| Used {
        held: vec![8, 0],
        sold_out: sold_out.iter().cloned().collect(),
        spent: spent.into_iter().collect(),
        ..Used::default()
    };
    assert_eq!(why(&used(&markets[..1], None), None), None, "another zone has some");
    let closed = |why: &str| Some((8, why.to_owned()));
    assert_eq!(why(&used(&markets, None), None), closed("all that it may make is out of stock"));
    assert_eq!(why(&used(&[], Some(BudgetOf::All)), None), closed("nothing is left of the budget of all pools"));
    let of_pool = || Some(BudgetOf::Pool(PoolName::new("pool").unwrap()));
    assert_eq!(why(&used(&[], of_pool()), Some("pool")), closed("nothing is left of the budget of pool pool"));
    assert_eq!(why(&used(&[], of_pool()), None), None, "the budget is another pool's");
}

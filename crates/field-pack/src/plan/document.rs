//! The document of a plan: what each change brings.

use ktypes::Kind;
use rustc_hash::FxHashMap;

use super::layout::{Changes, Layout};
use super::{Planner, Reasons, Schemes, scheme};
use crate::document::{
    CachePlan, CacheProfile, Excluded, FIELDS_SCHEMA, Fields, MemberCost, MemberPlan, TypePlan, TypeProfile,
};

impl<'a> Planner<'a> {
    pub(super) fn document(
        &self,
        changes: &Changes<'a>,
        schemes: &Schemes<'a>,
        reasons: &Reasons<'a>,
    ) -> Fields {
        let layouts = self.layouts.with(changes);
        let types = self.types.iter().map(|of| self.type_plan(of, &layouts, schemes, reasons)).collect();
        let caches: Vec<CachePlan> =
            self.memory.caches.iter().filter_map(|cache| self.cache_plan(cache, changes, &layouts)).collect();
        let all: u64 = self.profile.caches.iter().map(|cache| cache.bytes / 1024).sum();
        let gain = |cache: &CachePlan| cache.kib[0] as i64 - cache.kib[1] as i64;
        let gains: i64 = caches.iter().map(gain).sum();
        Fields {
            slab: [all, all.saturating_add_signed(-gains)],
            schema: FIELDS_SCHEMA.into(),
            kernel: release(&self.profile.kernel),
            build_id: self.profile.build_id.clone(),
            threshold: self.options.threshold,
            starve: self.options.starve,
            types,
            caches,
        }
    }

    fn type_plan(
        &self,
        of: &TypeProfile,
        layouts: &FxHashMap<&str, Layout>,
        schemes: &Schemes<'_>,
        reasons: &Reasons<'_>,
    ) -> TypePlan {
        let layout = layouts.get(&of.name[..]);
        let mut members = Vec::new();
        let mut excluded = Vec::new();
        for member in &of.members {
            let key = (&of.name[..], &member.name[..]);
            if let Some((scheme, otherwise)) = schemes.get(&key) {
                let mut scheme = scheme.clone();
                let limit = if self.options.starve { scheme::starve(member, &mut scheme) } else { None };
                members.push(MemberPlan {
                    name: member.name.clone(),
                    offset: member.offset,
                    bytes: member.bytes,
                    wrapped: member.wrapped.clone(),
                    aliases: scheme::aliases(of, member)
                        .unwrap_or_default()
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                    scheme,
                    otherwise: otherwise.clone().map(Box::new),
                    limit,
                    loads: member.loads,
                    stores: member.stores,
                });
            } else if let Some(why) = reasons.get(&key) {
                let by_code = self.excluded(&of.name, &member.name).iter().any(|one| one.scheme.is_none());
                let (name, why) = (member.name.clone(), why.clone());
                excluded.push(Excluded { name, why, scheme: None, planned: !by_code });
            }
            let others = self.excluded(&of.name, &member.name).into_iter().filter(|one| one.scheme.is_some());
            excluded.extend(others.cloned());
        }
        excluded.extend(self.excluded(&of.name, "").into_iter().cloned());
        TypePlan {
            name: of.name.clone(),
            size: [of.size, layout.map_or(of.size, |layout| layout.size)],
            order: layout.map(|layout| layout.order.clone()).unwrap_or_default(),
            members,
            excluded,
        }
    }

    /// Returns the effect on a cache; `None` if there is none.
    fn cache_plan(
        &self,
        cache: &CacheProfile,
        changes: &Changes<'a>,
        layouts: &FxHashMap<&str, Layout>,
    ) -> Option<CachePlan> {
        let of = cache.of.as_deref()?;
        layouts.get(of)?;
        let slab = self.memory.slab(cache, layouts);
        let kib = [cache.bytes_with(self.memory.slab(cache, &FxHashMap::default())), cache.bytes_with(slab)];
        let kib = kib.map(|bytes| bytes / 1024);
        let mut saved: Vec<(String, u64)> = Vec::new();
        self.saved(of, changes, layouts, 0, &mut saved);
        let all: u64 = saved.iter().map(|(_, bytes)| bytes).sum();
        let gain = kib[0] as f64 - kib[1] as f64;
        let mut members: Vec<MemberCost> = saved
            .into_iter()
            .map(|(name, bytes)| MemberCost {
                name,
                kib: (gain * bytes as f64 / all.max(1) as f64 * 10.0).round() / 10.0,
            })
            .collect();
        members.sort_by(|one, other| other.kib.total_cmp(&one.kib).then_with(|| one.name.cmp(&other.name)));
        Some(CachePlan {
            name: cache.name.clone(),
            of: of.to_owned(),
            size: [cache.size, slab.size],
            per_slab: [cache.per_slab, slab.objects],
            slab_bytes: [cache.slab_bytes, slab.bytes],
            objects: cache.objects,
            kib,
            members,
        })
    }

    /// Adds the bytes that each member of a structure and of its parts saves, and those that its new order saves.
    fn saved(
        &self,
        name: &str,
        changes: &Changes<'a>,
        layouts: &FxHashMap<&str, Layout>,
        depth: usize,
        saved: &mut Vec<(String, u64)>,
    ) {
        let Some(of) = self.profile.types.iter().find(|of| of.name == name).filter(|_| depth < 16) else {
            return;
        };
        let Some(layout) = layouts.get(name) else { return };
        let mut rest = of.size.saturating_sub(layout.size);
        for member in &of.members {
            if let Some(&width) = changes.widths.get(&(name, &member.name[..])) {
                saved.push((format!("{name}.{}", member.name), member.bytes - width));
                rest = rest.saturating_sub(member.bytes - width);
            }
            let part =
                member.structure.as_deref().filter(|_| member.kind == Kind::Structure && !member.union);
            if let Some((part, inner)) = part.and_then(|part| Some((part, layouts.get(part)?))) {
                self.saved(part, changes, layouts, depth + 1, saved);
                rest = rest.saturating_sub(member.bytes.saturating_sub(inner.size));
            }
        }
        if rest > 0 && changes.ordered.contains(name) {
            saved.push((name.to_owned(), rest));
        }
    }
}

/// Returns the release in the version of a kernel: `6.12.117` of `Linux version 6.12.117 (…`.
fn release(version: &str) -> String {
    version
        .strip_prefix("Linux version ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or(version)
        .to_owned()
}
